"""Simulated clusters for fault exploration."""
