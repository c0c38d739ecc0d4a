"""HTTP servers of a manager: probes, metrics, debug pages and webhooks.

``http_connection`` parses HTTP/1.1 with llhttp and writes responses. ``http_server`` listens and maps requests to a
handler. ``endpoints`` serves ``/healthz``, ``/readyz``, ``/metrics`` and ``/debug``; ``webhook_server`` serves
webhooks. ``HttpServer`` also serves endpoints of an operator's own.
"""

from steersman.manager.serving.http_server import HttpHandler, HttpServer, ServerRequest, ServerResponse

__all__ = ["HttpHandler", "HttpServer", "ServerRequest", "ServerResponse"]
