"""In-memory harnesses of unit tests."""
