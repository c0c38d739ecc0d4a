"""Capabilities of clusters, one package each."""
