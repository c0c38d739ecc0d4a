"""Kinds and fields for backups and restores."""
