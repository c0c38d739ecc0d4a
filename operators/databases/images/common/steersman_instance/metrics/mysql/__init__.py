"""Collectors of a MySQL server."""
