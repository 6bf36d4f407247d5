"""Leak detection: labelled traces, the benchmark over them, and the tests."""
