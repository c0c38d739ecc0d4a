"""Major version upgrade of PostgreSQL."""
