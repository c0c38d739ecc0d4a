"""Failures that have one known cure."""
