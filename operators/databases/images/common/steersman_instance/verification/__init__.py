"""Verification of backups.

One is restored into a temporary volume, the archive is replayed, and all data are read.
"""
