"""Scripts that make a machine ready for the tests."""
