"""Writes of a primary's pod to its own server."""
