"""The object store of backups, and the archive of WAL."""
