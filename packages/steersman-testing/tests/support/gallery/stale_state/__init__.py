"""Bugs of operators that act on stale caches."""
