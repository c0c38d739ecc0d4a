"""Clusters, databases and clients of end-to-end tests."""
