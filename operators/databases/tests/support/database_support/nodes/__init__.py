"""Faults of devcluster nodes and networks."""
