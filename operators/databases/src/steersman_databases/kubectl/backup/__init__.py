"""Commands for backups, restores and stores."""
