"""Debug pages: the state of controllers, caches and tasks as JSON.

The pages are::

    /debug                              list of pages
    /debug/controllers                  controllers with their queues and running reconciles
    /debug/controllers/<name>/recent    recent reconciles, newest first, with trigger, duration and result
    /debug/caches                       informers: number and size of objects, state of watches, last error
    /debug/tasks                        asyncio tasks with their stacks

The pages have names of objects and fields, but never values of fields or local variables. ``?limit=`` sets the
length of lists, 100 by default and at most 1000. ``?object=<namespace>/<name>`` selects one object.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec

from steersman.cache import Cache, Informer
from steersman.cache.optional_informer import OptionalInformer
from steersman.cache.sink import InformerSink
from steersman.controller import Controller, Request
from steersman.controller.queue import QueueItem
from steersman.controller.reconcile_info import ReconcileInfo
from steersman.manager.serving.http_server import ServerRequest, ServerResponse
from steersman.meta import ObjectKey

T = TypeVar("T")

_DEFAULT_LIMIT = 100
_MAX_LIMIT = 1000
_MAX_SLOWEST = 10
_MAX_STACK_DEPTH = 32


class DebugHandler:
    """Renders debug pages on request. It collects no data by itself."""

    def __init__(self, controllers: Sequence[Controller], cache: Cache) -> None:
        self._controllers = controllers
        self._cache = cache

    async def handle(self, request: ServerRequest) -> ServerResponse:
        """The page of the requested path, or 404 Not Found."""
        query = parse_qs(request.query)
        match request.path.rstrip("/").split("/")[1:]:
            case ["debug"]:
                return _json_response(self._index())
            case ["debug", "controllers"]:
                return _json_response([_describe_controller(each, query) for each in self._controllers])
            case ["debug", "controllers", name, "recent"]:
                controller = next((each for each in self._controllers if each.name == name), None)
                return (
                    _not_found(f"controller {name}")
                    if controller is None
                    else _json_response(_describe_recent(controller, query))
                )
            case ["debug", "caches"]:
                return _json_response([_describe_informer(each) for each in self._cache.informers])
            case ["debug", "tasks"]:
                return _json_response(_describe_tasks())
            case _:
                return _not_found(request.path)

    def _index(self) -> list[str]:
        recent = [f"/debug/controllers/{each.name}/recent" for each in self._controllers]
        return ["/debug/controllers", *recent, "/debug/caches", "/debug/tasks"]


QueryParameters = dict[str, list[str]]


def _describe_controller(controller: Controller, query: QueryParameters) -> dict[str, Any]:
    queue, resource = controller.queue, controller.resource
    now = queue.now()
    all_waiting = queue.waiting()
    waiting = _filter_by_object(all_waiting, lambda item: item.key, query)
    delayed = _filter_by_object(queue.delayed(), lambda item: item.key, query)
    return {
        "name": controller.name,
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "names": [resource.plural, *controller.spec.short_names],
        "namespaced": resource.namespaced,
        "started": controller.started,
        "needs_leader_election": controller.needs_leader_election,
        "workers": controller.options.max_concurrent_reconciles,
        "reconciles": controller.result_counts(),
        "reconcile_seconds": controller.reconcile_seconds(),
        "running": [{**info.to_builtins(), "age_seconds": info.age} for info in controller.running()],
        "queue": {
            "oldest_seconds": now - all_waiting[0].since if all_waiting else None,
            "depth": {str(priority): count for priority, count in queue.depths().items()},
            "waiting": [
                {**_describe_item(item), "waited_seconds": now - item.since}
                for item in waiting[: _parse_limit(query)]
            ],
            "delayed_keys": len(delayed),
            "delayed": [
                {
                    **_describe_item(item),
                    "due_in_seconds": item.since - now,
                    "consecutive_failures": queue.failures(item.key),
                }
                for item in heapq.nsmallest(_parse_limit(query), delayed, key=lambda item: item.since)
            ],
        },
        "slowest": [info.to_builtins() for info in _slowest(controller, query)],
    }


def _slowest(controller: Controller, query: QueryParameters) -> list[ReconcileInfo]:
    """Return at most ten of the recent reconciles, slowest first."""
    recent = _filter_by_object(controller.recent(), lambda info: info.request, query)
    return heapq.nlargest(min(_parse_limit(query), _MAX_SLOWEST), recent, key=lambda info: info.duration or 0.0)


def _describe_item(item: QueueItem[Request]) -> dict[str, Any]:
    return {
        "namespace": item.key.namespace,
        "name": item.key.name,
        "priority": item.priority,
        "triggers": [trigger.to_builtins() for trigger in item.triggers],
        "omitted_triggers": item.omitted,
    }


def _describe_recent(controller: Controller, query: QueryParameters) -> list[dict[str, Any]]:
    newest_first = _filter_by_object(reversed(controller.recent()), lambda info: info.request, query)
    return [info.to_builtins() for info in newest_first[: _parse_limit(query)]]


def _filter_by_object(items: Iterable[T], key: Callable[[T], ObjectKey], query: QueryParameters) -> list[T]:
    object_keys = query.get("object")
    return [each for each in items if object_keys is None or str(key(each)) in object_keys]


def _parse_limit(query: QueryParameters) -> int:
    value = query.get("limit", [""])[0]
    if not (value.isascii() and value.isdecimal()):
        return _DEFAULT_LIMIT
    return min(int(value), _MAX_LIMIT) if len(value) <= len(str(_MAX_LIMIT)) else _MAX_LIMIT


def _describe_informer(informer: Informer[Any]) -> dict[str, Any]:
    resource = informer.kind.api_resource
    objects, size = informer.usage()
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "type": f"{informer.kind.__module__}.{informer.kind.__qualname__}",
        "objects": objects,
        "bytes": size,
        "synced": informer.has_synced,
        **({"served": informer.is_served} if isinstance(informer, OptionalInformer) else {}),
        "staleness_seconds": informer.staleness(),
        "watches": [_describe_sink(sink) for sink in informer.sinks],
    }


def _describe_sink(sink: InformerSink[Any]) -> dict[str, Any]:
    reflector, selection = sink.reflector, sink.scope.selection
    error = reflector.last_error
    return {
        "namespace": sink.scope.namespace,
        "label_selector": selection.label_selector,
        "field_selector": selection.field_selector,
        "state": reflector.state.value,
        "resource_version": reflector.resource_version,
        "synced": sink.has_synced,
        "uncertain_writes": len(sink.uncertain_keys),
        "last_error": None if error is None else f"{type(error).__name__}: {error}",
    }


def _describe_tasks() -> list[dict[str, Any]]:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return [{"name": task.get_name(), "stack": _task_stack(task)} for task in tasks]


def _task_stack(task: asyncio.Task[Any]) -> list[str]:
    """The stack of ``task``, outermost frame first. ``Task.get_stack`` has only the outermost coroutine."""
    frames: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(frames) < _MAX_STACK_DEPTH:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        code = frame.f_code
        frames.append(f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return frames


def _json_response(content: Any) -> ServerResponse:
    body = msgspec.json.format(msgspec.json.encode(content), indent=2)
    return ServerResponse(body + b"\n", content_type="application/json")


def _not_found(subject: str) -> ServerResponse:
    return ServerResponse(f"{subject} not found; see /debug for available pages\n", 404)
