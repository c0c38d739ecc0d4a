"""Recovery of a new cluster from a backup and an archive."""
