"""Benchmarks of the database operator and its clusters on real Kubernetes."""
