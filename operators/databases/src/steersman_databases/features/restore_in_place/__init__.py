"""Restore of a whole cluster in place."""
