"""Health of a PostgreSQL server, by SQL."""
