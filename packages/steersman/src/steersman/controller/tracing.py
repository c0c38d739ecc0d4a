"""Traces reconciles with OpenTelemetry. The module is imported only if tracing is enabled.

Each reconcile starts a trace, named after its controller. Its attributes contain the triggers: paths of changed
fields, never their values. The event ``queued`` has the time since which the request has waited. Requests to the API
server are child spans.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider, format_trace_id, get_tracer
from opentelemetry.util.types import AttributeValue

from steersman.client.transport.tracing import INSTRUMENTATION_SCOPE
from steersman.controller.controller import ErrorCallback, TraceSpan
from steersman.controller.errors import flatten
from steersman.controller.reconcile_info import ReconcileInfo
from steersman.controller.spec import ControllerSpec


def reconcile_tracer(spec: ControllerSpec, provider: TracerProvider | None = None) -> TraceSpan:
    """Return the ``trace_span`` of a controller.

    ``provider`` is the one of ``client.tracing.TracingTransport``.
    """
    tracer = get_tracer(INSTRUMENTATION_SCOPE, tracer_provider=provider)
    name = f"reconcile {spec.name}"

    @contextmanager
    def trace_reconcile(info: ReconcileInfo) -> Generator[ErrorCallback | None, None, None]:
        # An empty context: each reconcile starts a new trace.
        with tracer.start_as_current_span(
            name, context=Context(), record_exception=False, set_status_on_exception=False
        ) as span:
            if not span.is_recording():
                yield None
                return
            info.trace_id = format_trace_id(span.get_span_context().trace_id)
            span.set_attributes(_request_attributes(info, spec))
            _add_queued_event(span, info)
            try:
                yield lambda error: _record_error(span, error)
            except BaseException as error:
                _record_error(span, error)
                raise
            finally:
                span.set_attributes(_result_attributes(info))

    return trace_reconcile


def _request_attributes(info: ReconcileInfo, spec: ControllerSpec) -> dict[str, AttributeValue]:
    obj = spec.get_cached(info.request)
    return {
        "steersman.controller": info.controller,
        "steersman.reconcile.id": info.id,
        "steersman.reconcile.attempt": info.attempt,
        "steersman.reconcile.priority": info.priority,
        "steersman.object.kind": spec.resource.kind,
        "steersman.object.api_version": spec.resource.api_version,
        "steersman.object.name": info.request.name,
        **({"k8s.namespace.name": info.request.namespace} if info.request.namespace else {}),
        **({"steersman.object.uid": obj.metadata.uid} if obj is not None else {}),
    }


def _add_queued_event(span: Span, info: ReconcileInfo) -> None:
    triggers = [str(trigger) for trigger in info.triggers]
    attributes: dict[str, AttributeValue] = {"steersman.queue.waited_seconds": info.waited}
    span.set_attributes({**attributes, "steersman.reconcile.triggers": triggers})
    start_time = getattr(span, "start_time", None)
    if start_time is not None:
        span.add_event("queued", attributes, timestamp=start_time - int(info.waited * 1e9))


def _result_attributes(info: ReconcileInfo) -> dict[str, AttributeValue]:
    after = {} if info.requeue_after is None else {"steersman.reconcile.requeue_after_seconds": info.requeue_after}
    return {"steersman.reconcile.result": info.result or "error", **after}


def _record_error(span: Span, error: BaseException) -> None:
    errors = flatten(error)
    for each in errors:
        # The traceback contains no local variables, which may be passwords.
        span.record_exception(each)
    names = ", ".join(type(each).__name__ for each in errors)
    span.set_attribute("error.type", type(errors[0]).__name__)
    span.set_status(Status(StatusCode.ERROR, names))
