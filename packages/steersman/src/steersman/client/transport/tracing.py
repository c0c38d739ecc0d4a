"""Spans of requests, by OpenTelemetry; imported only where somebody wants traces.

A span stands for one request as its caller sees it, further tries and pauses between them included. Neither bodies
nor queries are in it. Watches have none: they last for minutes, and belong to nobody's work.

Source: "Semantic conventions for HTTP client spans" of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Protocol, runtime_checkable

from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider, get_tracer
from opentelemetry.util.types import AttributeValue

from steersman.client.transport.address import parse_address
from steersman.client.transport.http import HttpTransport
from steersman.client.transport.interface import HttpRequest, HttpResponse, Transport

INSTRUMENTATION_SCOPE = "steersman"
"""The name of the instrumentation scope."""


class TracingTransport(Transport):
    """Makes a span of each request, below whatever span is current.

    Args:
        inner: carries the requests.
        provider: makes the spans; None: the process's own, as ``opentelemetry.trace.set_tracer_provider`` set it.
    """

    def __init__(self, inner: Transport, provider: TracerProvider | None = None) -> None:
        self._inner = inner
        self._tracer = get_tracer(INSTRUMENTATION_SCOPE, tracer_provider=provider)
        self._origin = ""
        self._server: dict[str, AttributeValue] = {}
        if server := _find_server_url(inner):
            address = parse_address(server)
            self._origin = f"{address.origin}{address.path}"
            self._server = {"server.address": address.host, "server.port": address.port}

    @property
    def inner(self) -> Transport:
        """What carries the requests: leader election goes past this one."""
        return self._inner

    async def request(self, request: HttpRequest) -> HttpResponse:
        template = url_template(request.path)
        attributes = {
            **self._server,
            "http.request.method": request.method,
            "url.template": template,
            "url.full": f"{self._origin}{request.path}",
        }
        name = f"{request.method} {template}"
        with self._tracer.start_as_current_span(
            name, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                response = await self._inner.request(request)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= 400:
                span.set_attribute("error.type", str(response.status))
                span.set_status(Status(StatusCode.ERROR))
            return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


@runtime_checkable
class _TransportWrapper(Protocol):
    @property
    def inner(self) -> Transport: ...


def _find_server_url(transport: Transport) -> str:
    """The API server's URL; empty where there is none, as in memory."""
    while isinstance(transport, _TransportWrapper):
        transport = transport.inner
    return transport.server if isinstance(transport, HttpTransport) else ""


@lru_cache(maxsize=1024)
def url_template(path: str) -> str:
    """``path`` without what differs between objects, such as ``/api/v1/namespaces/{namespace}/pods/{name}/log``.

    Source: "Kubernetes API Concepts", section "Resource URIs".
    """
    parts = path.strip("/").split("/")
    start = {"api": 2, "apis": 3}.get(parts[0])
    if start is None or len(parts) <= start:
        return path
    prefix, rest = parts[:start], parts[start:]
    of_namespace_itself = len(rest) == 3 and rest[2] in ("status", "finalize")
    if rest[0] == "namespaces" and len(rest) > 2 and not of_namespace_itself:
        prefix, rest = [*prefix, "namespaces", "{namespace}"], rest[2:]
    if len(rest) > 1:
        rest[1] = "{name}"
    if rest[2:3] == ["proxy"]:
        del rest[3:]
    return "/" + "/".join([*prefix, *rest])
