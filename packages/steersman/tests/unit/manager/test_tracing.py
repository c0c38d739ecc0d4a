"""OpenTelemetry spans of reconciles and their requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, format_trace_id

from framework_support.controller_env import ControllerEnv, key, running
from framework_support.widget import Widget, WidgetStatus
from steersman.api.apply import core, meta
from steersman.client import ClusterConfig, HttpRequest, HttpTransport, MergePatch, RetryingTransport, StaticToken
from steersman.client.transport.tracing import TracingTransport, url_template
from steersman.controller import Controller, ReconcileOutcome, Request, RequestReconciler, Result, current_reconcile
from steersman.errors import ConfigurationError, ConnectionFailed
from steersman.manager import Manager, ManagerOptions
from steersman_testing import matching, virtual_time

PASSWORD = "hunter222"


class Exports:
    """A tracer provider and its spans."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(start)]

    def everything(self) -> str:
        return "".join(span.to_json() for span in self.exporter.get_finished_spans())


class PasswordReconciler(RequestReconciler[Widget]):
    """Maintains a password per widget, and reports the depth."""

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        metadata = meta.ObjectMeta(name=f"lock-{request.name}", namespace=request.namespace)
        password = PASSWORD
        await self.client.apply(core.Secret(metadata=metadata, string_data={"password": password}), owner=widget)
        if widget.spec.depth > 100:
            raise RuntimeError("too deep")
        return Result(requeue_after=3600)

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        widget = await self.client.get(Widget, request)
        await self.client.apply_status(widget, WidgetStatus(depth=widget.spec.depth))


@asynccontextmanager
async def running_manager(
    world: ControllerEnv, tracing: Any, reconciler: type[RequestReconciler[Widget]] = PasswordReconciler
) -> AsyncGenerator[Controller, None]:
    manager = Manager(world.server, ManagerOptions(tracing=tracing), world.runtime)
    controller = manager.controller(Widget).complete(reconciler)
    async with running(manager):
        await asyncio.sleep(1)
        yield controller


@virtual_time
async def test_trace_links_event_reconcile_and_writes() -> None:
    world, exports = ControllerEnv(), Exports()
    world.create_widgets("a", depth=3)
    async with running_manager(world, exports.provider):
        pass
    span = exports.named("reconcile widget")[0]
    attributes = span.attributes or {}
    assert span.parent is None
    assert {name: value for name, value in attributes.items() if "waited" not in name and "id" not in name} == {
        "steersman.controller": "widget",
        "steersman.reconcile.attempt": 1,
        "steersman.reconcile.priority": -100,
        "steersman.reconcile.triggers": ("Widget orders/a initial",),
        "steersman.reconcile.result": "requeue_after",
        "steersman.reconcile.requeue_after_seconds": 3600,
        "steersman.object.kind": "Widget",
        "steersman.object.api_version": "shop.example.com/v1",
        "steersman.object.name": "a",
        "k8s.namespace.name": "orders",
    }
    assert attributes["steersman.object.uid"] == world.read_widget("a").metadata.uid
    assert span.status.status_code is StatusCode.UNSET
    children = [s for s in exports.named("PATCH") if s.parent and s.parent.span_id == identity(span).span_id]
    assert [child.name for child in children] == [
        "PATCH /api/v1/namespaces/{namespace}/secrets/{name}",
        "PATCH /apis/shop.example.com/v1/namespaces/{namespace}/widgets/{name}/status",
    ]
    lock = children[0]
    assert lock.kind is SpanKind.CLIENT
    assert lock.attributes == {
        "http.request.method": "PATCH",
        "url.template": "/api/v1/namespaces/{namespace}/secrets/{name}",
        "url.full": "/api/v1/namespaces/orders/secrets/lock-a",
        "http.response.status_code": 201,
    }
    assert PASSWORD not in exports.everything()


def identity(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def _reason(span: ReadableSpan) -> str:
    triggers: Any = (span.attributes or {})["steersman.reconcile.triggers"]
    return triggers[0]


@virtual_time
async def test_span_has_changed_fields_and_queue_event() -> None:
    world, exports = ControllerEnv(), Exports()
    world.create_widgets("a", "b")

    class Slow(RequestReconciler[Widget]):
        async def reconcile(self, request: Request) -> Result:
            await asyncio.sleep(10)
            return Result()

    async with running_manager(world, exports.provider, Slow):
        await asyncio.sleep(30)
        for name, depth in (("a", 2), ("b", 77)):
            await world.client.patch(Widget, key(name), MergePatch({"spec": {"depth": depth}}))
        await asyncio.sleep(30)
    last = exports.named("reconcile widget")[-1]
    assert (last.attributes or {})["steersman.reconcile.triggers"] == ("Widget orders/b updated: spec.depth",)
    (queued,) = last.events
    assert queued.name == "queued"
    assert queued.attributes == {"steersman.queue.waited_seconds": pytest.approx(10)}
    assert last.start_time is not None
    assert last.start_time - queued.timestamp == pytest.approx(10e9)
    assert "77" not in str(last.attributes)


@virtual_time
async def test_span_errors_have_no_local_variables() -> None:
    world, exports = ControllerEnv(), Exports()
    world.create_widgets("deep", depth=200)
    world.server.fail_next(matching("PATCH", "/status"), ConnectionFailed("lost"))
    async with running_manager(world, exports.provider):
        pass
    first, second = exports.named("reconcile widget")[:2]
    assert (first.attributes or {})["steersman.reconcile.result"] == "error"
    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description == "RuntimeError, ConnectionFailed"
    recorded = [event.attributes or {} for event in first.events if event.name == "exception"]
    assert [attributes["exception.message"] for attributes in recorded] == ["too deep", "lost"]
    assert "in reconcile" in str(recorded[0]["exception.stacktrace"])
    assert (second.attributes or {})["steersman.reconcile.attempt"] == 2
    assert _reason(second) == "retry after RuntimeError"
    assert PASSWORD not in exports.everything()
    (lost,) = [s for s in exports.named("PATCH /apis/shop.example.com") if (s.attributes or {}).get("error.type")]
    assert (lost.attributes or {})["error.type"] == "ConnectionFailed"


@virtual_time
async def test_log_lines_name_the_trace() -> None:
    world, exports = ControllerEnv(), Exports()
    world.create_widgets("a")
    seen: list[Any] = []

    class LoggingReconciler(RequestReconciler[Widget]):
        async def reconcile(self, request: Request) -> Result:
            info = current_reconcile()
            assert info is not None
            seen.append((info.log_fields()["trace_id"], info.id))
            return Result()

    async with running_manager(world, exports.provider, LoggingReconciler):
        pass
    (span,) = exports.named("reconcile widget")
    trace_id = format_trace_id(identity(span).trace_id)
    assert seen == [(trace_id, (span.attributes or {})["steersman.reconcile.id"])]


@virtual_time
async def test_unsampled_trace_formats_no_attributes() -> None:
    world, exports = ControllerEnv(), Exports(sampler=ALWAYS_OFF)
    world.create_widgets("a", depth=200)
    async with running_manager(world, exports.provider) as controller:
        assert {info.result for info in controller.recent()} == {"error"}
        assert {info.trace_id for info in controller.recent()} == {""}
    assert exports.exporter.get_finished_spans() == ()


@virtual_time
async def test_cancelled_worker_ends_its_span() -> None:
    world, exports = ControllerEnv(), Exports()
    world.create_widgets("a")

    class Stuck(RequestReconciler[Widget]):
        async def reconcile(self, request: Request) -> Result:
            await asyncio.Event().wait()
            return Result()

    async with running_manager(world, exports.provider, Stuck):
        pass
    (span,) = exports.named("reconcile widget")
    assert (span.attributes or {})["error.type"] == "CancelledError"
    assert (span.attributes or {})["steersman.reconcile.result"] == "error"


@virtual_time
async def test_tracing_true_uses_global_provider() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    async with running_manager(world, True):
        pass
    assert world.read_widget("a").status == WidgetStatus(depth=1)


@virtual_time
async def test_tracing_without_extra_raises_with_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in ("steersman.client.transport.tracing", "steersman.controller.tracing"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ConfigurationError, match=r"steersman\[tracing\]"):
        Manager(ControllerEnv().server, ManagerOptions(tracing=True))


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/version", "/version"),
        ("/api", "/api"),
        ("/apis/apps/v1", "/apis/apps/v1"),
        ("/api/v1/nodes", "/api/v1/nodes"),
        ("/api/v1/nodes/n1/status", "/api/v1/nodes/{name}/status"),
        ("/api/v1/namespaces", "/api/v1/namespaces"),
        ("/api/v1/namespaces/orders", "/api/v1/namespaces/{name}"),
        ("/api/v1/namespaces/orders/status", "/api/v1/namespaces/{name}/status"),
        ("/api/v1/namespaces/orders/pods", "/api/v1/namespaces/{namespace}/pods"),
        ("/api/v1/namespaces/orders/pods/p/log", "/api/v1/namespaces/{namespace}/pods/{name}/log"),
        (
            "/apis/apps/v1/namespaces/orders/deployments/d/scale",
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
        ),
        (
            "/api/v1/namespaces/orders/services/s/proxy/orders/17",
            "/api/v1/namespaces/{namespace}/services/{name}/proxy",
        ),
    ],
)
def test_span_names_have_low_cardinality(path: str, template: str) -> None:
    assert url_template(path) == template


async def test_failed_request_span_names_server() -> None:
    exports = Exports()
    carrier = HttpTransport(ClusterConfig(server="https://127.0.0.1:1/base", credentials=StaticToken(PASSWORD)))
    transport = TracingTransport(RetryingTransport(carrier), exports.provider)
    with pytest.raises(ConnectionFailed):
        await transport.request(HttpRequest(method="POST", path="/api/v1/namespaces", timeout=5))
    await transport.close()
    (span,) = exports.exporter.get_finished_spans()
    attributes = span.attributes or {}
    assert (attributes["server.address"], attributes["server.port"]) == ("127.0.0.1", 1)
    assert attributes["url.full"] == "https://127.0.0.1:1/base/api/v1/namespaces"
    assert span.status.status_code is StatusCode.ERROR


@virtual_time
async def test_span_of_error_response_is_error() -> None:
    world, exports = ControllerEnv(), Exports()
    transport = TracingTransport(world.server, exports.provider)
    path = "/apis/shop.example.com/v1/namespaces/orders/widgets/none"
    await transport.request(HttpRequest(method="GET", path=path))
    (span,) = exports.exporter.get_finished_spans()
    assert (span.attributes or {})["error.type"] == "404"
    assert span.status.status_code is StatusCode.ERROR
