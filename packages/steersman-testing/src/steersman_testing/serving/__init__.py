"""HTTP server for the in-memory API server, for kubectl and other clients."""

from steersman_testing.serving.endpoint import ApiEndpoint, serve

__all__ = ["ApiEndpoint", "serve"]
