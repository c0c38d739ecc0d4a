"""Where Go's JSON differs from what a Python type alone would say. Used by the generated built-in kinds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from msgspec import UNSET
from msgspec.structs import force_setattr

from steersman.meta.frozen import FrozenDict, FrozenStruct
from steersman.meta.quantity import Quantity

T = TypeVar("T")

if TYPE_CHECKING:
    NullableTuple: TypeAlias = tuple[T, ...]
    """A list that Go writes as ``null`` when it is empty. Users never see that: see ``null_is_empty``."""
    QuantityLike: TypeAlias = Quantity | str
    """What may be given where Kubernetes expects a quantity: ``Quantity("1Gi")`` or plainly ``"1Gi"``."""
else:
    NullableTuple = tuple[T, ...] | None
    # msgspec decodes no union of a custom type and a string; the text form is what travels anyway.
    QuantityLike = str


class MicroTime(datetime):
    """A moment that always travels with six digits of microseconds, as ``metav1.MicroTime`` demands.

    Go refuses ``2026-01-01T00:00:00Z`` for such a field, which is how a whole second is otherwise written.
    """

    def __str__(self) -> str:
        return self.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def null_is_empty(struct: FrozenStruct, field: str) -> None:
    """Makes an empty tuple of the ``null`` that Go writes for a nil slice."""
    if getattr(struct, field) is None:
        force_setattr(struct, field, ())


def frozen_json(value: Any) -> Any:
    """``value`` (dicts, lists, scalars) with every dict and list in it made immutable."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return FrozenDict({k: frozen_json(v) for k, v in members.items()})
    if isinstance(value, list | tuple):
        return tuple(frozen_json(v) for v in cast("list[Any]", value))
    return value


def freeze_json(struct: FrozenStruct, *fields: str) -> None:
    """Makes ``fields``, whose type the API leaves open, deeply immutable."""
    for field in fields:
        value = getattr(struct, field)
        if isinstance(value, dict | list | tuple):
            force_setattr(struct, field, frozen_json(value))


def with_microseconds(struct: FrozenStruct, *fields: str) -> None:
    """Makes ``MicroTime`` of the moments in ``fields``."""
    for field in fields:
        moment = getattr(struct, field)
        if isinstance(moment, datetime) and not isinstance(moment, MicroTime):
            force_setattr(struct, field, MicroTime.combine(moment.date(), moment.timetz()))


def repr_without(struct: FrozenStruct, *fields: str) -> str:
    """``repr`` that shows whether ``fields`` are set and not what they are: logs and tracebacks outlive secrets."""
    shown = (
        f"{name}={'<hidden>' if name in fields and value else repr(value)}"
        for name in struct.__struct_fields__
        if (value := getattr(struct, name)) is not UNSET
    )
    return f"{type(struct).__name__}({', '.join(shown)})"
