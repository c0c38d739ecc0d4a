"""The kinds, by version."""
