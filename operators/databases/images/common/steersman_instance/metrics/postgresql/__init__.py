"""Collectors of a PostgreSQL server."""
