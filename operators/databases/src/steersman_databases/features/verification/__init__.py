"""Verification of backups by restoring them."""
