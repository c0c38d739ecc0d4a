"""OpenTelemetry spans of requests. The module is imported only if tracing is enabled.

A span covers one request of a caller, including retries and the delays between them. It contains neither the body nor
the query. Watches have no spans, since they last for minutes and do not belong to one reconcile.

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
"""Name of the instrumentation scope."""


class TracingTransport(Transport):
    """Creates a child of the current span for each request.

    Args:
        inner: transport that sends the requests.
        provider: creates the spans. Defaults to the provider of ``opentelemetry.trace.set_tracer_provider``.
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
        """The wrapped transport. Leader election uses it directly, without spans."""
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
    """Return the URL of the API server.

    It is empty for a server in memory.
    """
    while isinstance(transport, _TransportWrapper):
        transport = transport.inner
    return transport.server if isinstance(transport, HttpTransport) else ""


@lru_cache(maxsize=1024)
def url_template(path: str) -> str:
    """Replace namespace and name in ``path`` by placeholders.

    An example is ``/api/v1/namespaces/{namespace}/pods/{name}/log``.

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
