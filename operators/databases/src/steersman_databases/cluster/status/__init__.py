"""Conditions and status of clusters."""
