"""Sessions, inspection and statements of PostgreSQL."""
