"""Parameters and access rules of PostgreSQL."""
