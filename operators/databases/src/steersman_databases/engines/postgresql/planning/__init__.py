"""SQL plans for PostgreSQL."""
