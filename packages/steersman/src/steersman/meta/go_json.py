"""Peculiarities of Go's JSON encoding, for the generated built-in kinds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from msgspec import UNSET
from msgspec.structs import force_setattr

from steersman.meta.frozen import FrozenDict, FrozenStruct
from steersman.meta.quantity import Quantity

T = TypeVar("T")

MAX_JSON_DEPTH = 200
"""Levels of free-form JSON in an object. The API server accepts 10,000, and Python recurses through fewer."""

if TYPE_CHECKING:
    NullableTuple: TypeAlias = tuple[T, ...]
    """List that Go encodes as ``null`` when it is empty. ``null_is_empty`` replaces the ``null``."""
    QuantityLike: TypeAlias = Quantity | str
    """Quantity argument: ``Quantity("1Gi")`` or ``"1Gi"``."""
else:
    NullableTuple = tuple[T, ...] | None
    # msgspec cannot decode a union of a custom type and a string. JSON contains the string.
    QuantityLike = str


class MicroTime(datetime):
    """Time that is encoded with six digits of microseconds (``metav1.MicroTime``).

    Go rejects a time without fraction, such as ``2026-01-01T00:00:00Z``, in such a field.
    """

    def __str__(self) -> str:
        return self.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def null_is_empty(struct: FrozenStruct, field: str) -> None:
    """Replace None by an empty tuple. Go encodes a nil slice as ``null``."""
    if getattr(struct, field) is None:
        force_setattr(struct, field, ())


def frozen_json(value: Any, *, depth: int = MAX_JSON_DEPTH) -> Any:
    """Return a deeply immutable copy of dicts, lists and scalars.

    Raises:
        ValueError: ``value`` is nested deeper than ``depth``. Code that recurses over it could fail.
    """
    if not isinstance(value, dict | list | tuple):
        return value
    if depth == 0:
        raise ValueError(f"JSON is nested deeper than {MAX_JSON_DEPTH} levels")
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return FrozenDict({k: frozen_json(v, depth=depth - 1) for k, v in members.items()})
    return tuple([frozen_json(v, depth=depth - 1) for v in cast("list[Any]", value)])


def freeze_json(struct: FrozenStruct, *fields: str) -> None:
    """Make ``fields`` of arbitrary JSON deeply immutable."""
    for field in fields:
        value = getattr(struct, field)
        if isinstance(value, dict | list | tuple):
            force_setattr(struct, field, frozen_json(value))


def with_microseconds(struct: FrozenStruct, *fields: str) -> None:
    """Convert the times in ``fields`` to ``MicroTime``."""
    for field in fields:
        moment = getattr(struct, field)
        if isinstance(moment, datetime) and not isinstance(moment, MicroTime):
            force_setattr(struct, field, MicroTime.combine(moment.date(), moment.timetz()))


def repr_without(struct: FrozenStruct, *fields: str) -> str:
    """Return a ``repr`` that hides the values of ``fields``.

    Secrets must not appear in logs and tracebacks.
    """
    shown = (
        f"{name}={'<hidden>' if name in fields and value else repr(value)}"
        for name in struct.__struct_fields__
        if (value := getattr(struct, name)) is not UNSET
    )
    return f"{type(struct).__name__}({', '.join(shown)})"
