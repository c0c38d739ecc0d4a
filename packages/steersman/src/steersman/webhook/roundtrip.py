"""The fields of a struct: with their defaults written out, and in the words of another version."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from steersman.errors import SteersmanError
from steersman.meta import FrozenDict, FrozenStruct, ObjectMeta, Unstructured, decode_builtins, to_builtins

StructT = TypeVar("StructT", bound=FrozenStruct)


class ConversionFailed(SteersmanError):
    """An object cannot be converted; the message names it and says why."""


def copy_fields(source: FrozenStruct, kind: type[StructT], **overrides: Any) -> StructT:
    """``source`` as a ``kind``, which is what another version calls it: fields of the same name have the same value.

    Fields that only ``source`` has are left out, and those that only ``kind`` has are at their default.

    Args:
        overrides: the fields that differ, by their names in ``kind``.

    Example:
        ``copy_fields(old.spec, v2.ShopSpec, domain=old.spec.host)``

    Raises:
        ConversionFailed: a value does not fit the type that the field has in ``kind``, or a required one is missing.
    """
    source_fields = {f.name: f for f in struct_fields(type(source))}
    values = dict(overrides)
    for field in struct_fields(kind):
        if field.name in source_fields and field.name not in overrides:
            value = getattr(source, field.name)
            values[field.name] = (
                value if field.type == source_fields[field.name].type else _convert_value(value, field)
            )
    try:
        return kind(**values)
    except TypeError as error:
        raise ConversionFailed(f"{type(source).__name__} becomes no {kind.__name__}: {error}") from None


def to_explicit_builtins(value: Any) -> Any:
    """``value`` in wire form, defaults that are not empty included: nobody fills them in after a conversion."""
    # Of metadata, which templates have as well, a zero is what is absent.
    if isinstance(value, Unstructured | ObjectMeta):
        return to_builtins(value)
    if isinstance(value, FrozenStruct):
        fields = ((f, getattr(value, f.name)) for f in struct_fields(type(value)))
        return {f.encode_name: to_explicit_builtins(v) for f, v in fields if not _is_omitted(f, v)}
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return [to_explicit_builtins(v) for v in cast("tuple[Any, ...]", value)]
    if isinstance(value, FrozenDict):
        return {k: to_explicit_builtins(v) for k, v in cast("dict[str, Any]", value).items()}
    return to_builtins(value)


@cache
def struct_fields(kind: type[FrozenStruct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of ``kind``, looked at once."""
    return msgspec.structs.fields(kind)


def _convert_value(value: Any, field: msgspec.structs.FieldInfo) -> Any:
    try:
        return decode_builtins(to_explicit_builtins(value), field.type)
    except msgspec.ValidationError as error:
        raise ConversionFailed(f"{field.encode_name} does not fit: {error}") from None


def _is_omitted(field: msgspec.structs.FieldInfo, value: Any) -> bool:
    if value is None or field.required:
        return value is None
    # A struct of Kubernetes' own that was absent is its type's default, and no other one that is equal to it.
    if isinstance(value, FrozenStruct):
        return value is field.default and not _has_content(value)
    return value == field.default and value in ("", (), {})


def _has_content(value: FrozenStruct) -> bool:
    """Whether something is in it that nobody fills in, such as a default of one's own."""
    return bool(to_explicit_builtins(value))
