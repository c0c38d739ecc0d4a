"""API types of version v1."""
