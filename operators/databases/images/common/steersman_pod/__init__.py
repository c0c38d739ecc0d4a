"""Shared parts of the server images: pod, volumes, and API server client."""
