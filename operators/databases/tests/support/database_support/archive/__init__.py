"""Archives of PostgreSQL: generated ones for the planner, and real ones."""
