"""Dumps of real servers into a real object store."""
