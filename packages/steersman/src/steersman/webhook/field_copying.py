"""Copies fields between versions, and encodes defaults explicitly."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from steersman.errors import SteersmanError
from steersman.meta import FrozenDict, FrozenStruct, ObjectMeta, Unstructured, decode_builtins, to_builtins
from steersman.webhook.type_hints import struct_fields

StructT = TypeVar("StructT", bound=FrozenStruct)


class ConversionFailed(SteersmanError):
    """An object cannot be converted."""


def copy_fields(source: FrozenStruct, kind: type[StructT], **overrides: Any) -> StructT:
    """Create a ``kind`` from ``source``, copying fields of the same name.

    Fields that only ``source`` has are dropped. Fields that only ``kind`` has get their defaults.

    Args:
        overrides: values of further fields, by their names in ``kind``.

    Example:
        ``copy_fields(old.spec, v2.ShopSpec, domain=old.spec.host)``

    Raises:
        ConversionFailed: a value does not match the type of the field in ``kind``, or a required field is missing.
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
        raise ConversionFailed(f"cannot convert {type(source).__name__} to {kind.__name__}: {error}") from None


def to_explicit_builtins(value: Any) -> Any:
    """``value`` in wire form, including defaults.

    The API server does not apply defaults after a conversion. Empty defaults are omitted.
    """
    # In metadata, zero values are absent.
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


def _convert_value(value: Any, field: msgspec.structs.FieldInfo) -> Any:
    try:
        return decode_builtins(to_explicit_builtins(value), field.type)
    except msgspec.ValidationError as error:
        raise ConversionFailed(f"field {field.encode_name} does not match: {error}") from None


def _is_omitted(field: msgspec.structs.FieldInfo, value: Any) -> bool:
    if value is None or field.required:
        return value is None
    # An absent struct is the default object itself, not an equal one.
    if isinstance(value, FrozenStruct):
        return value is field.default and not _has_content(value)
    return value == field.default and value in ("", (), {})


def _has_content(value: FrozenStruct) -> bool:
    """Return True if ``value`` has values or defaults to encode."""
    return bool(to_explicit_builtins(value))
