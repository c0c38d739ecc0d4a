"""What an operator does and why, as JSON: for people who look into a running process.

    /debug                              the paths below
    /debug/controllers                  each controller: its queue, what waits and why, what runs, and for how long
    /debug/controllers/<name>/recent    its last reconciles, newest first: why, how long, how they ended
    /debug/caches                       each kind: objects, bytes, the state of its watches, the last error
    /debug/tasks                        every asyncio task, and where it stands

Objects, fields and errors are named; the values of fields and local variables never are. ``?limit=`` shows more than
a hundred of a list, and ``?object=<namespace>/<name>`` that object alone.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec

from steersman.cache import Cache
from steersman.controller import Controller
from steersman.controller.queue import Item
from steersman.manager.http_server import Request, Response
from steersman.meta import ObjectKey

T = TypeVar("T")

_LIMIT = 100
_LONGEST_STACK = 32


class DebugPages:
    """The answers, asked for when somebody looks: nothing is kept or counted for them."""

    def __init__(self, controllers: Sequence[Controller], cache: Cache) -> None:
        self._controllers = controllers
        self._cache = cache

    async def answer(self, request: Request) -> Response:
        """What ``request`` asks for, or 404."""
        query = parse_qs(request.query)
        match request.path.rstrip("/").split("/")[1:]:
            case ["debug"]:
                return _json(self._index())
            case ["debug", "controllers"]:
                return _json([_controller(each, query) for each in self._controllers])
            case ["debug", "controllers", name, "recent"]:
                found = next((each for each in self._controllers if each.name == name), None)
                return _unknown(f"controller {name}") if found is None else _json(_recent(found, query))
            case ["debug", "caches"]:
                return _json([_cache(each) for each in self._cache.informers])
            case ["debug", "tasks"]:
                return _json(_tasks())
            case _:
                return _unknown(request.path)

    def _index(self) -> list[str]:
        recent = [f"/debug/controllers/{each.name}/recent" for each in self._controllers]
        return ["/debug/controllers", *recent, "/debug/caches", "/debug/tasks"]


Query = dict[str, list[str]]


def _controller(controller: Controller, query: Query) -> dict[str, Any]:
    queue, resource = controller.queue, controller.resource
    now = queue.now()
    waiting = _chosen(queue.waiting(), lambda item: item.key, query)
    delayed = _chosen(queue.delayed(), lambda item: item.key, query)
    return {
        "name": controller.name,
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "started": controller.started,
        "needs_leader_election": controller.needs_leader_election,
        "workers": controller.options.max_concurrent_reconciles,
        "running": [{**info.to_builtins(), "age_seconds": info.age} for info in controller.running()],
        "queue": {
            "depth": {str(priority): count for priority, count in queue.depths().items()},
            "waiting": [{**_queued(item), "waited_seconds": now - item.since} for item in waiting[: _limit(query)]],
            "delayed_keys": len(delayed),
            "delayed": [
                {**_queued(item), "due_in_seconds": item.since - now, "failures_in_a_row": queue.failures(item.key)}
                for item in heapq.nsmallest(_limit(query), delayed, key=lambda item: item.since)
            ],
        },
    }


def _queued(item: Item[ObjectKey]) -> dict[str, Any]:
    return {
        "namespace": item.key.namespace,
        "name": item.key.name,
        "priority": item.priority,
        "triggers": [trigger.to_builtins() for trigger in item.triggers],
        "omitted_triggers": item.omitted,
    }


def _recent(controller: Controller, query: Query) -> list[dict[str, Any]]:
    newest_first = _chosen(reversed(controller.recent()), lambda info: info.request, query)
    return [info.to_builtins() for info in newest_first[: _limit(query)]]


def _chosen(found: Iterable[T], key: Callable[[T], ObjectKey], query: Query) -> list[T]:
    wanted = query.get("object")
    return [each for each in found if wanted is None or str(key(each)) in wanted]


def _limit(query: Query) -> int:
    given = query.get("limit", [""])[0]
    return int(given) if given.isascii() and given.isdecimal() else _LIMIT


def _cache(informer: Any) -> dict[str, Any]:
    resource = informer.kind.api_resource
    objects, size = informer.held()
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "type": f"{informer.kind.__module__}.{informer.kind.__qualname__}",
        "objects": objects,
        "bytes": size,
        "synced": informer.has_synced,
        "staleness_seconds": informer.staleness(),
        "watches": [_watch(part) for part in informer.parts],
    }


def _watch(part: Any) -> dict[str, Any]:
    reflector, selection = part.reflector, part.scope.selection
    error = reflector.last_error
    return {
        "namespace": part.scope.namespace,
        "label_selector": selection.label_selector,
        "field_selector": selection.field_selector,
        "state": reflector.state.value,
        "resource_version": reflector.resource_version,
        "synced": part.has_synced,
        "uncertain_writes": len(part.doubts),
        "last_error": None if error is None else f"{type(error).__name__}: {error}",
    }


def _tasks() -> list[dict[str, Any]]:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    return [{"name": task.get_name(), "stack": _stack(task)} for task in tasks]


def _stack(task: asyncio.Task[Any]) -> list[str]:
    """Where ``task`` stands, outermost first. ``Task.get_stack`` knows of the outermost coroutine only."""
    places: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(places) < _LONGEST_STACK:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        code = frame.f_code
        places.append(f"{code.co_qualname} ({code.co_filename}:{frame.f_lineno})")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return places


def _json(content: Any) -> Response:
    body = msgspec.json.format(msgspec.json.encode(content), indent=2)
    return Response(body + b"\n", content_type="application/json")


def _unknown(what: str) -> Response:
    return Response(f"there is no {what}; /debug lists what there is\n", 404)
