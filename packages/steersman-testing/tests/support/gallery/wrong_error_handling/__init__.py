"""Bugs in the handling of API errors."""
