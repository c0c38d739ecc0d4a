"""Starts of simulated clusters that tests share.

Most tests begin with a cluster that is ready. The start takes more CPU time than the rest of the test, so it runs
once in a process, and tests continue from a snapshot of its result.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from steersman.observability.runtime import Runtime
from steersman_testing import InMemoryApiServer
from steersman_testing.apiserver.storage import StoredObject

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W", bound="World")

_RESULTS: dict[Hashable, tuple[_Snapshot, Any]] = {}


class World(Protocol):
    """A dataclass whose further fields are models that can be copied."""

    runtime: Runtime
    server: InMemoryApiServer

    def operator(self) -> AbstractAsyncContextManager[object]:
        """Run the operator on the API server."""
        ...


@dataclass(frozen=True)
class _Snapshot:
    """State of a world.

    Attributes:
        objects: namespaced objects, in the order of their resourceVersions.
        version: resourceVersion of the API server.
        models: fields of the world.
        random: state of the random numbers.
        time: virtual seconds.
    """

    objects: tuple[StoredObject, ...]
    version: int
    models: Mapping[str, Any]
    random: Any
    time: float

    @classmethod
    def take(cls, world: World) -> _Snapshot:
        """Copy the state of ``world``."""
        storage = world.server._storage  # pyright: ignore[reportPrivateUsage]
        objects = sorted((s for s in storage.all() if s.key.namespace), key=lambda stored: stored.version)
        random, time = world.runtime.random.getstate(), world.runtime.clock.monotonic()
        return cls(tuple(objects), storage.version, deepcopy(_models(world)), random, time)

    def identity(self) -> Hashable:
        """Return a value that is equal for equal states."""
        objects = tuple((stored.key, repr(stored.object)) for stored in self.objects)
        return objects, self.version, _fingerprint(self.models), self.random, self.time

    async def restore(self, world: World) -> None:
        """Write the objects with their resourceVersions, and change models in place."""
        await world.runtime.clock.sleep(self.time - world.runtime.clock.monotonic())
        storage = world.server._storage  # pyright: ignore[reportPrivateUsage]
        for stored in self.objects:
            if stored.version > storage.version:
                storage.version = stored.version - 1
                storage.put(stored.collection, stored.key, stored.object, stored.managers)
        storage.version = self.version
        for name, value in deepcopy(self.models).items():
            setattr(world, name, _overwrite(getattr(world, name), value))
        world.runtime.random.setstate(self.random)


def shared_start(start: Callable[Concatenate[W, P], Awaitable[R]]) -> Callable[Concatenate[W, P], Awaitable[R]]:
    """Run ``start`` once for equal worlds and arguments.

    It runs on a copy of the world, so that a test behaves the same whether it is the first or not. The operator of
    the world must run. It observes the result at once and has nothing in memory, as after a restart. Do not use it
    in tests that patch what ``start`` calls, or that measure it.
    """

    @functools.wraps(start)
    async def wrapped(world: W, *arguments: P.args, **options: P.kwargs) -> R:
        before = _Snapshot.take(world)
        given = repr(arguments), repr(sorted(options.items()))
        identity = start.__qualname__, type(world), given, before.identity()
        if identity not in _RESULTS:
            twin = type(world)()
            await before.restore(twin)
            async with twin.operator():
                result = await start(twin, *arguments, **options)
                _RESULTS[identity] = _Snapshot.take(twin), result
        snapshot, result = _RESULTS[identity]
        await snapshot.restore(world)
        return result

    return wrapped


def _models(world: World) -> dict[str, Any]:
    assert is_dataclass(world)
    return {one.name: getattr(world, one.name) for one in fields(world) if one.name != "runtime"}


def _attributes(value: object) -> dict[str, Any] | None:
    """Return the attributes of a model, or None for plain values and functions."""
    if is_dataclass(value) and not hasattr(value, "__dict__"):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return vars(value) if hasattr(value, "__dict__") and not callable(value) else None


def _fingerprint(value: object) -> object:
    """Return a hashable form that is equal for equal models."""
    match value:
        case dict():
            return tuple((repr(k), _fingerprint(v)) for k, v in cast("dict[Any, Any]", value).items())
        case list() | tuple():
            return tuple(map(_fingerprint, cast("list[Any]", value)))
        case set() | frozenset():
            return frozenset(map(_fingerprint, cast("set[Any]", value)))
        case functools.partial():
            return _fingerprint((value.func, value.args))
        case _:
            attributes = _attributes(value)
            if attributes is not None:
                return type(value), _fingerprint(attributes)
            return getattr(value, "__qualname__", None) or repr(value)


def _overwrite(target: Any, source: Any) -> Any:
    """Copy ``source`` into ``target`` if it is mutable. Return the result."""
    if type(target) is not type(source):
        return source
    if isinstance(target, dict | set):
        own, given = cast("dict[Any, Any]", target), cast("dict[Any, Any]", source)
        content = {k: _overwrite(own.get(k), v) for k, v in given.items()} if isinstance(source, dict) else given
        own.clear()
        own.update(content)
        return own
    if isinstance(target, list):
        own = cast("list[Any]", target)
        own[:] = source
        return own
    attributes = _attributes(target)
    if attributes is None or _is_frozen(target):
        return source
    for name, value in (_attributes(source) or {}).items():
        setattr(target, name, _overwrite(attributes.get(name), value))
    return target


def _is_frozen(value: Any) -> bool:
    return is_dataclass(value) and getattr(type(value), "__dataclass_params__").frozen  # noqa: B009
