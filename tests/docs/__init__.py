"""The generated documents: made by `make docs`, checked for staleness by the tests."""
