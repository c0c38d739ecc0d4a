"""PgBouncer in front of a cluster."""
