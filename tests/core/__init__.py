"""What stands between the sources and the page, piece by piece, without a process."""
