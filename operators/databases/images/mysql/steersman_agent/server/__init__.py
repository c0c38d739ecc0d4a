"""The mysqld process of a member."""
