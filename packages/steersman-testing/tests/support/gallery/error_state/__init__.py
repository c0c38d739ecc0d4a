"""Bugs that leave an object in an error state."""
