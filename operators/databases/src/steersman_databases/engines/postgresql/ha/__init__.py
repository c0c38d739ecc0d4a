"""Patroni: configuration, members and REST API."""
