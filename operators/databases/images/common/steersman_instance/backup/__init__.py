"""Backups of a database: catalog, retention, and programs of Jobs."""
