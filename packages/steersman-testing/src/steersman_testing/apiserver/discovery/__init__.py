"""Discovery of groups and resources."""
