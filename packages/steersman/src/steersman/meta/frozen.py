"""Immutable base types. Objects from the cache are shared and must not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, dataclass_transform

import msgspec

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """Immutable dict. It is hashable if its values are.

    It is a subclass of ``dict`` instead of a proxy, so that msgspec and ``json`` can encode it and reads stay fast.
    """

    __slots__ = ()

    def _raise_immutable(self, *_: Any, **__: Any) -> NoReturn:
        """Raise TypeError, because cached objects are shared."""
        raise TypeError("objects from the API server are shared and immutable: build a new dict instead")

    if not TYPE_CHECKING:
        __setitem__ = __delitem__ = __ior__ = _raise_immutable
        clear = pop = popitem = setdefault = update = _raise_immutable

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        # By default, copy and pickle set the items one by one, which raises TypeError.
        return type(self), (dict(self),)

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(frozenset(self.items()))


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class FrozenStructMeta(msgspec.StructMeta):
    """Metaclass that makes every subclass frozen and keyword-only."""

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
    """Base class of all types that the API server sends or receives.

    Attributes are snake_case in Python and camelCase in JSON. Declare the JSON name of an acronym:
    ``cluster_ip: str = msgspec.field(name="clusterIP")``.

    Instances are immutable. ``msgspec.structs.replace(obj, field=value)`` returns a changed copy. They cannot form
    reference cycles, so the garbage collector does not track them.
    """
