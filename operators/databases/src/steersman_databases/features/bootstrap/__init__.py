"""Bootstrap database and post-init SQL."""
