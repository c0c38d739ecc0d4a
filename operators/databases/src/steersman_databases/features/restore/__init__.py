"""Restore of tables or of one database next to the present ones."""
