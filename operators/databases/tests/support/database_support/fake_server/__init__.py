"""A database server in memory."""
