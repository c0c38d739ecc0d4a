"""Benchmarks of the database operator and of what it runs, on the real cluster."""
