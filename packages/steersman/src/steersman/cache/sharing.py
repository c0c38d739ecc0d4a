"""Equal parts of objects are held once.

The pods of a deployment differ in their names, addresses and times; containers, probes, tolerations, labels and most
strings are the same in all. Objects are deeply immutable, so such parts can be shared: fifty thousand pods then cost
a fraction of what they cost apart.

Parts are found from below: strings, and small structures without times (which would never be equal). What nobody
holds any more is let go a little at a time, so that there is never a pause.
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

# Deeper structures are rarely equal as a whole; their parts are shared instead.
_DEEPEST = 2
# For each new part so many former ones are looked at, whether anybody still holds them.
_LOOKED_AT = 2
_FEWEST = 1000

# Times are hardly ever equal, and the others can be equal without being the same.
_NEVER_WHOLE = (datetime, Quantity, Any, dict)
_Action = Callable[["Sharing", Any], Any]


class Sharing:
    """The parts of one kind's objects."""

    def __init__(self) -> None:
        self._parts: dict[Any, Any] = {}
        self._queue: list[Any] = []
        self._place = 0

    def __len__(self) -> int:
        return len(self._parts)

    def share(self, obj: T, former: T | None = None) -> T:
        """``obj`` itself, whose parts are now those of equal objects. Nobody else may have seen it before.

        Args:
            former: the object as it was, if it is known: most changes leave most of it as it is.
        """
        for name, action in zip(obj.__struct_fields__, _plan(type(obj)), strict=True):
            value = getattr(obj, name)
            if action is None or not value:
                continue
            known = getattr(former, name) if former is not None else None
            part = known if known == value and not _is_open(value.__class__) else action(self, value)
            if part is not value:
                force_setattr(obj, name, part)
        return obj

    def descend(self, struct: FrozenStruct) -> FrozenStruct:
        """Shares the parts of ``struct``, which itself is not."""
        plan = _plan(type(struct))
        for place, value in enumerate(astuple(struct)):
            if value and (action := plan[place]) is not None:
                part = action(self, value)
                if part is not value:
                    force_setattr(struct, struct.__struct_fields__[place], part)
        return struct

    def part(self, value: Any) -> Any:
        """The part that equals ``value``, which may be ``value``."""
        found = self._parts.get(value)
        if found is None:
            return self._keep(value, value)
        # Equal values of different types, such as 1 and True, are not the same.
        return found if type(found) is type(value) else value

    def each_part(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """As ``part``, for the items as well."""
        return self.part(tuple([self.part(value) for value in values]))

    def each_descend(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """As ``descend``, for each item."""
        for value in values:
            self.descend(value)
        return values

    def map(self, values: FrozenDict[str, str]) -> FrozenDict[str, str]:
        """As ``part``, for keys and values as well."""
        found = self._parts.get(values)
        if found is not None:
            return found
        part = self.part
        return part(FrozenDict({part(k): part(v) for k, v in values.items()}))

    def quantities(self, values: FrozenDict[str, Quantity]) -> FrozenDict[str, Quantity]:
        """As ``map``; quantities are told apart by their text, since 1024Mi equals 1Gi."""
        key = tuple([part for name, value in values.items() for part in (name, str(value))])
        found = self._parts.get(key)
        return self._keep(key, values) if found is None else found

    def _keep(self, key: Any, part: Any) -> Any:
        self._parts[key] = part
        self._queue.append(key)
        self._let_go()
        return part

    def _let_go(self) -> None:
        """Looks at the next few parts; those that only we hold are forgotten."""
        queue = self._queue
        if len(queue) < _FEWEST:
            return
        for _ in range(_LOOKED_AT):
            self._place = (self._place - 1) % len(queue)
            key = queue[self._place]
            part = self._parts[key]
            # A part that is its own key is there twice more.
            if sys.getrefcount(part) <= (_UNHELD if part is key else _UNHELD - 2):
                last = queue.pop()
                if self._place < len(queue):
                    queue[self._place] = last
                del self._parts[key], key


def _unheld() -> int:
    """How often a part is referred to that nobody but its table holds, as ``_let_go`` counts."""
    table = {(new := object()): new}
    queue = [new]
    del new
    key = queue[0]
    part = table[key]
    return sys.getrefcount(part)


_UNHELD = _unheld()


_MAPS: dict[Any, _Action] = {str: Sharing.map, int | str: Sharing.map, Quantity: Sharing.quantities}


@cache
def _plan(kind: type[FrozenStruct]) -> tuple[_Action | None, ...]:
    """What to do with each field of ``kind``; None where there is nothing to share."""
    hints = get_type_hints(kind)
    return tuple(_action(hints[name]) for name in kind.__struct_fields__)


def _action(hint: Any) -> _Action | None:
    for option in _options(hint):
        origin, arguments = getattr(option, "__origin__", option), get_args(option)
        if option is str:
            return Sharing.part
        if origin is FrozenDict:
            return _MAPS.get(arguments[1]) if len(arguments) == 2 else None
        if origin is tuple:
            item = arguments[0]
            if item is str or (_is_struct(item) and _depth(item) <= _DEEPEST):
                return Sharing.each_part
            return Sharing.each_descend if _is_struct(item) else None
        if _is_struct(option):
            return Sharing.part if _depth(option) <= _DEEPEST else Sharing.descend
    return None


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type alone, without what annotates it."""
    if hasattr(hint, "__metadata__"):
        return _options(hint.__origin__)
    arguments = get_args(hint)
    if type(None) in arguments or "Union" in type(hint).__name__:
        return tuple(option for argument in arguments for option in _options(argument) if option is not type(None))
    return (hint,)


def _is_text(hint: Any) -> bool:
    return get_args(hint)[1:] in ((str,), (int | str,))


@cache
def _is_open(kind: type) -> bool:
    """Whether something of open form is anywhere in ``kind``, where 1 and True would pass for equal."""
    if not _is_struct(kind):
        return False
    options = [option for hint in get_type_hints(kind).values() for option in _options(hint)]
    inner = [argument for option in options for argument in (option, *get_args(option))]
    return any(
        i in (Any, dict) or (i is not kind and _is_open(cast("type", i)))
        for i in inner
        if i is Any or isinstance(i, type)
    )


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


@cache
def _depth(kind: type[FrozenStruct]) -> int:
    """How many structures are nested in ``kind``; many where it must not or need not be shared as a whole."""
    deepest = 0
    for hint in get_type_hints(kind).values():
        for option in _options(hint):
            inner = get_args(option)[0] if getattr(option, "__origin__", None) is tuple else option
            # Equal is not the same: True equals 1, and 1024Mi equals 1Gi.
            if inner in _NEVER_WHOLE or (getattr(inner, "__origin__", inner) is FrozenDict and not _is_text(inner)):
                return 99
            if _is_struct(inner) and inner is not kind:
                deepest = max(deepest, 1 + _depth(inner))
    return deepest
