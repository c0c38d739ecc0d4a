"""The second door of the API server in memory: HTTP/1.1 on the loopback interface, for ``kubectl`` and whatever else
speaks to Kubernetes. Both doors lead to the same objects."""

from steersman_testing.serving.endpoint import ApiEndpoint, serve

__all__ = ["ApiEndpoint", "serve"]
