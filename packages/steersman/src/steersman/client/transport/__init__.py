"""Transports carry requests to the API server and return its responses.

``Transport`` is the interface, which the API server in memory implements as well. ``HttpTransport`` sends requests
over HTTP/1.1 and TLS, with the credentials of a ClusterConfig. It takes connections from a ConnectionPool.
``RetryingTransport``, ``RateLimitedTransport`` and ``TracingTransport`` wrap another transport. ``connect`` combines
them.
"""

from steersman.client.transport.interface import HttpRequest, HttpResponse, Transport

__all__ = ["HttpRequest", "HttpResponse", "Transport"]
