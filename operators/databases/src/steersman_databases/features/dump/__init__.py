"""Logical dumps of a Database on a server, and their restore."""
