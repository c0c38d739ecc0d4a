"""Backups of clusters: the archive's configuration, Backup objects and their Jobs."""
