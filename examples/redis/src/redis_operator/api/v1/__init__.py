"""The kinds in version v1."""
