"""Interns equal parts of cached objects.

The pods of a Deployment differ in names, addresses and times; containers, probes, tolerations, labels and most
strings are the same. Objects are deeply immutable, so equal parts can be shared. Fifty thousand pods then need a
fraction of the memory.

Interning works bottom-up: strings, and small structures without times, which are hardly ever equal. Unused parts are
evicted a few at a time, so there is never a pause.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec.structs import astuple, force_setattr

from steersman.meta import FrozenDict, Object, Quantity
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)

# Deeper structures are rarely equal as a whole; their parts are interned instead.
_MAX_DEPTH = 2
# Known parts that are checked for eviction with each new part.
_EVICTION_CHECKS = 2
_EVICTION_MIN_SIZE = 1000

# Times are hardly ever equal, and values of the other types can be equal without being the same.
_NEVER_INTERNED = (datetime, Quantity, Any, dict)
_InternFunction = Callable[["Interner", Any], Any]


class Interner:
    """Shares equal parts between the cached objects of one kind."""

    def __init__(self) -> None:
        self._interned: dict[Any, Any] = {}
        self._eviction_queue: list[Any] = []
        self._eviction_index = 0

    def __len__(self) -> int:
        return len(self._interned)

    def intern(self, obj: T, previous: T | None = None) -> T:
        """Replace the parts of ``obj``, in place, by equal interned ones.

        Args:
            obj: a new object that no other code has a reference to.
            previous: the object before the change, if known: most changes leave most parts equal.
        """
        for name, function in zip(obj.__struct_fields__, _field_functions(type(obj)), strict=True):
            value = getattr(obj, name)
            if function is None or not value:
                continue
            known = getattr(previous, name) if previous is not None else None
            interned = known if known == value and not _contains_untyped(value.__class__) else function(self, value)
            if interned is not value:
                force_setattr(obj, name, interned)
        return obj

    def intern_fields(self, struct: FrozenStruct) -> FrozenStruct:
        """Intern the fields of ``struct``, but not ``struct`` itself."""
        functions = _field_functions(type(struct))
        for index, value in enumerate(astuple(struct)):
            if value and (function := functions[index]) is not None:
                interned = function(self, value)
                if interned is not value:
                    force_setattr(struct, struct.__struct_fields__[index], interned)
        return struct

    def intern_value(self, value: Any) -> Any:
        """Return the interned equal of ``value``, or ``value`` itself."""
        found = self._interned.get(value)
        if found is None:
            return self._add(value, value)
        # Equal values of different types, such as 1 and True, are not the same.
        return found if type(found) is type(value) else value

    def intern_tuple(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Intern a tuple and its items."""
        return self.intern_value(tuple([self.intern_value(value) for value in values]))

    def intern_each_fields(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Intern the fields of each item."""
        for value in values:
            self.intern_fields(value)
        return values

    def intern_map(self, values: FrozenDict[str, str]) -> FrozenDict[str, str]:
        """Intern a map, its keys and its values."""
        found = self._interned.get(values)
        if found is not None:
            return found
        intern = self.intern_value
        return intern(FrozenDict({intern(k): intern(v) for k, v in values.items()}))

    def intern_quantities(self, values: FrozenDict[str, Quantity]) -> FrozenDict[str, Quantity]:
        """Intern a map of quantities. They are compared by text, since 1024Mi equals 1Gi."""
        key = tuple([item for name, value in values.items() for item in (name, str(value))])
        found = self._interned.get(key)
        return self._add(key, values) if found is None else found

    def _add(self, key: Any, value: Any) -> Any:
        self._interned[key] = value
        self._eviction_queue.append(key)
        self._evict()
        return value

    def _evict(self) -> None:
        """Check the next few parts, and drop those that no object uses."""
        queue = self._eviction_queue
        if len(queue) < _EVICTION_MIN_SIZE:
            return
        for _ in range(_EVICTION_CHECKS):
            self._eviction_index = (self._eviction_index - 1) % len(queue)
            key = queue[self._eviction_index]
            value = self._interned[key]
            # A part that is its own key has two more references.
            if sys.getrefcount(value) <= (_UNUSED_REFCOUNT if value is key else _UNUSED_REFCOUNT - 2):
                last = queue.pop()
                if self._eviction_index < len(queue):
                    queue[self._eviction_index] = last
                del self._interned[key], key


def _measure_unused_refcount() -> int:
    """Return the reference count that ``_evict`` reads for an unused part."""
    table = {(new := object()): new}
    queue = [new]
    del new
    key = queue[0]
    value = table[key]
    return sys.getrefcount(value)


_UNUSED_REFCOUNT = _measure_unused_refcount()


_MAP_FUNCTIONS: dict[Any, _InternFunction] = {
    str: Interner.intern_map,
    int | str: Interner.intern_map,
    Quantity: Interner.intern_quantities,
}


@cache
def _field_functions(kind: type[FrozenStruct]) -> tuple[_InternFunction | None, ...]:
    """Return the intern function of each field of ``kind``.

    None stands for a field that is not interned.
    """
    hints = get_type_hints(kind)
    return tuple(_function_for(hints[name]) for name in kind.__struct_fields__)


def _function_for(hint: Any) -> _InternFunction | None:
    for member in _union_members(hint):
        origin, arguments = getattr(member, "__origin__", member), get_args(member)
        if member is str:
            return Interner.intern_value
        if origin is FrozenDict:
            return _MAP_FUNCTIONS.get(arguments[1]) if len(arguments) == 2 else None
        if origin is tuple:
            item = arguments[0]
            if item is str or (_is_struct(item) and _depth(item) <= _MAX_DEPTH):
                return Interner.intern_tuple
            return Interner.intern_each_fields if _is_struct(item) else None
        if _is_struct(member):
            return Interner.intern_value if _depth(member) <= _MAX_DEPTH else Interner.intern_fields
    return None


def _union_members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type alone, without annotations."""
    if hasattr(hint, "__metadata__"):
        return _union_members(hint.__origin__)
    arguments = get_args(hint)
    if type(None) in arguments or "Union" in type(hint).__name__:
        return tuple(
            option for argument in arguments for option in _union_members(argument) if option is not type(None)
        )
    return (hint,)


def _is_text_map(hint: Any) -> bool:
    return get_args(hint)[1:] in ((str,), (int | str,))


@cache
def _contains_untyped(kind: type) -> bool:
    """Return True if ``kind`` contains an untyped value.

    In such a value 1 and True would be equal.
    """
    if not _is_struct(kind):
        return False
    members = [option for hint in get_type_hints(kind).values() for option in _union_members(hint)]
    inner = [argument for option in members for argument in (option, *get_args(option))]
    return any(
        i in (Any, dict) or (i is not kind and _contains_untyped(cast("type", i)))
        for i in inner
        if i is Any or isinstance(i, type)
    )


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


@cache
def _depth(kind: type[FrozenStruct]) -> int:
    """Return the nesting depth of ``kind``.

    It is 99 if the kind must not be interned as a whole.
    """
    deepest = 0
    for hint in get_type_hints(kind).values():
        for option in _union_members(hint):
            inner = get_args(option)[0] if getattr(option, "__origin__", None) is tuple else option
            # Equal is not the same: True equals 1, and 1024Mi equals 1Gi.
            if inner in _NEVER_INTERNED or (
                getattr(inner, "__origin__", inner) is FrozenDict and not _is_text_map(inner)
            ):
                return 99
            if _is_struct(inner) and inner is not kind:
                deepest = max(deepest, 1 + _depth(inner))
    return deepest
