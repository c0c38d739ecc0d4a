"""Spans of reconciles, by OpenTelemetry; imported only where somebody wants traces.

A reconcile begins a trace of its own, named after its controller. Its span says why it runs (paths of changed
fields, never their values), has the event ``queued`` at the moment from which the object waited for its turn, which
is that of the watch event unless a retry or a timer came due, and contains a span for each request.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider, format_trace_id, get_tracer
from opentelemetry.util.types import AttributeValue

from steersman.client.tracing import SCOPE
from steersman.controller.controller import Controller, Tell
from steersman.controller.current import ReconcileInfo
from steersman.controller.failures import leaves


def trace_reconciles(controller: Controller, provider: TracerProvider | None = None) -> None:
    """Makes a span of each reconcile of ``controller``; ``provider`` as for ``client.tracing.TracingTransport``."""
    controller.span = _spans(controller, provider)


def _spans(
    controller: Controller, provider: TracerProvider | None
) -> Callable[[ReconcileInfo], AbstractContextManager[Tell | None]]:
    tracer = get_tracer(SCOPE, tracer_provider=provider)
    name = f"reconcile {controller.name}"

    @contextmanager
    def surround(info: ReconcileInfo) -> Generator[Tell | None, None, None]:
        # A trace of its own, whatever the controller was started in.
        with tracer.start_as_current_span(
            name, context=Context(), record_exception=False, set_status_on_exception=False
        ) as span:
            if not span.is_recording():
                yield None
                return
            info.trace_id = format_trace_id(span.get_span_context().trace_id)
            span.set_attributes(_cause(info, controller))
            _note_queued(span, info)
            try:
                yield lambda error: _fail(span, error)
            except BaseException as error:
                _fail(span, error)
                raise
            finally:
                span.set_attributes(_outcome(info))

    return surround


def _cause(info: ReconcileInfo, controller: Controller) -> dict[str, AttributeValue]:
    obj = controller.find(info.request) if controller.find is not None else None
    return {
        "steersman.controller": info.controller,
        "steersman.reconcile.id": info.id,
        "steersman.reconcile.attempt": info.attempt,
        "steersman.reconcile.priority": info.priority,
        "steersman.object.kind": controller.resource.kind,
        "steersman.object.api_version": controller.resource.api_version,
        "steersman.object.name": info.request.name,
        **({"k8s.namespace.name": info.request.namespace} if info.request.namespace else {}),
        **({"steersman.object.uid": obj.metadata.uid} if obj is not None else {}),
    }


def _note_queued(span: Span, info: ReconcileInfo) -> None:
    triggers = [str(trigger) for trigger in info.triggers]
    attributes: dict[str, AttributeValue] = {"steersman.queue.waited_seconds": info.waited}
    span.set_attributes({**attributes, "steersman.reconcile.triggers": triggers})
    began = getattr(span, "start_time", None)
    if began is not None:
        span.add_event("queued", attributes, timestamp=began - int(info.waited * 1e9))


def _outcome(info: ReconcileInfo) -> dict[str, AttributeValue]:
    after = {} if info.requeue_after is None else {"steersman.reconcile.requeue_after_seconds": info.requeue_after}
    return {"steersman.reconcile.result": info.result or "error", **after}


def _fail(span: Span, error: BaseException) -> None:
    each = leaves(error)
    for one in each:
        # With its traceback, which names places and no local variables: they may hold passwords.
        span.record_exception(one)
    names = ", ".join(type(one).__name__ for one in each)
    span.set_attribute("error.type", type(each[0]).__name__)
    span.set_status(Status(StatusCode.ERROR, names))
