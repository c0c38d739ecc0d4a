"""Immutable building blocks: what the cache hands out is shared, so nobody may change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, dataclass_transform

import msgspec

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that cannot be changed after it is made; hashable when its values are.

    A subclass of ``dict`` rather than a proxy, since msgspec and ``json`` encode it as it is and reads cost
    nothing extra.
    """

    __slots__ = ()

    def _raise_immutable(self, *_: Any, **__: Any) -> NoReturn:
        """Raises TypeError."""
        raise TypeError("objects from the API server are shared and immutable: build a new dict instead")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = _raise_immutable
        clear = pop = popitem = setdefault = update = _raise_immutable

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        # Otherwise copies and pickles would be filled item by item.
        return type(self), (dict(self),)

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(frozenset(self.items()))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class FrozenStructMeta(msgspec.StructMeta):
    """Makes every subclass frozen and keyword-only without its author having to say so."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any
    ) -> FrozenStructMeta:
        defaults: dict[str, Any] = {
            "frozen": True,
            "kw_only": True,
            "omit_defaults": True,
            "gc": False,
            "rename": "camel",
        }
        return super().__new__(mcls, name, bases, namespace, **(defaults | config))


class FrozenStruct(msgspec.Struct, metaclass=FrozenStructMeta):
    """Base of every type that travels to or from the API server.

    Attributes are snake_case and travel as camelCase; acronyms name their wire form:
    ``cluster_ip: str = msgspec.field(name="clusterIP")``. Instances are immutable;
    ``msgspec.structs.replace(obj, field=value)`` makes a changed copy. They cannot form reference cycles, so the
    garbage collector does not track them.
    """
