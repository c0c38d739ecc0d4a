"""Read replicas of PostgreSQL clusters, and their number."""
