"""Logical dumps of one database, and their restore."""
