"""Bugs that prevent recovery after a wrong spec."""
