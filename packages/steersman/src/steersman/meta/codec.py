"""JSON to typed objects and back: decoded once, straight into the struct."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from steersman.meta.duration import Duration
from steersman.meta.frozen import FrozenDict
from steersman.meta.go_json import MicroTime, frozen_json
from steersman.meta.quantity import Quantity

T = TypeVar("T")

# Values of maps that are taken as they are: labels and quantities are most of what is decoded.
_UNCONVERTED_TYPES = (str, int | str)


def _decode_hook(kind: Any, value: Any) -> Any:
    return _converter(kind)(value)


@cache
def _converter(kind: Any) -> Callable[[Any], Any]:
    """Return the function that converts builtins to ``kind``. The cache saves calls of typing for each map."""
    if kind is Quantity or kind is Duration:
        return kind
    if kind is not FrozenDict and get_origin(kind) is not FrozenDict:
        raise NotImplementedError(f"no JSON form is known for {kind!r}")
    arguments = get_args(kind)
    if not arguments or arguments[1] is Any:
        return lambda value: frozen_json({} if value is None else value)
    if arguments[1] in _UNCONVERTED_TYPES:
        return lambda value: FrozenDict({} if value is None else value)
    value_type: Any = dict[str, arguments[1]]

    def convert(value: Any) -> FrozenDict[str, Any]:
        try:
            return FrozenDict(msgspec.convert({} if value is None else value, value_type, dec_hook=_decode_hook))
        except msgspec.ValidationError as error:
            # msgspec appends the path to a ValueError only.
            raise ValueError(str(error)) from None

    return convert


def _encode_hook(value: Any) -> Any:
    if isinstance(value, Quantity | Duration | MicroTime):
        return str(value)
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise NotImplementedError(f"no JSON form is known for {type(value)!r}")


@cache
def _decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    # Types that are more than the sum of their fields, see ``Unstructured``.
    own: Callable[[bytes | msgspec.Raw], Any] | None = getattr(kind, "decode_wire", None)
    return own or msgspec.json.Decoder(kind, dec_hook=_decode_hook).decode


_encoder = msgspec.json.Encoder(enc_hook=_encode_hook)


def decode(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """``data`` (JSON) as an instance of ``kind``; unknown fields are dropped.

    Raises:
        msgspec.ValidationError: a field has another type than ``kind`` says; names its path.
        msgspec.DecodeError: not JSON.
    """
    return _decoder(kind)(data)


def decode_builtins(value: Any, kind: type[T]) -> T:
    """``value`` (dicts, lists, strings, numbers) as an instance of ``kind``. Raises as ``decode`` does."""
    if hasattr(kind, "decode_wire"):
        return decode(encode(value), kind)
    return msgspec.convert(value, kind, dec_hook=_decode_hook)


def encode(value: Any) -> bytes:
    """``value`` as JSON. Fields at their default are left out of read types, unset ones out of apply types."""
    own: Callable[[], Any] | None = getattr(value, "to_wire", None)
    return _encoder.encode(value if own is None else own())


def to_builtins(value: Any) -> Any:
    """``value`` as dicts, lists and scalars, with the same omissions as ``encode``."""
    # msgspec's own leaves tuples as they are; this takes hardly longer.
    return msgspec.json.decode(encode(value))
