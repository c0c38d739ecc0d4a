"""The transport: requests to the API server and their responses, on a socket or in memory."""

from steersman.client.transport.interface import HttpRequest, HttpResponse, Transport

__all__ = ["HttpRequest", "HttpResponse", "Transport"]
