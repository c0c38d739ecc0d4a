"""Verification of backups: restore one into a temporary volume, replay the archive, and read all data."""
