"""The tests. `tests.kernel` is the simulated kernel on which AMD's own libraries run."""
