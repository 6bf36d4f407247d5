"""Settings, the command line, durations and the log."""
