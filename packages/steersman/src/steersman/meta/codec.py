"""Conversion between JSON and typed objects, without an intermediate dict."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from steersman.errors import error_text
from steersman.meta.duration import Duration
from steersman.meta.frozen import FrozenDict
from steersman.meta.go_json import MicroTime, frozen_json
from steersman.meta.quantity import Quantity

T = TypeVar("T")

# Maps with these values skip the conversion, because most decoded maps have string values.
_UNCONVERTED_TYPES = (str, int | str)


def _decode_hook(kind: Any, value: Any) -> Any:
    return _converter(kind)(value)


@cache
def _converter(kind: Any) -> Callable[[Any], Any]:
    """Return the function that converts builtins to ``kind``.

    Cached, because inspecting ``kind`` for each map is slow.
    """
    if kind is Quantity or kind is Duration:
        return kind
    if kind is not FrozenDict and get_origin(kind) is not FrozenDict:
        raise NotImplementedError(f"type {kind!r} cannot be decoded from JSON")
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
            # msgspec adds the field path to a ValueError only.
            raise ValueError(str(error)) from None

    return convert


def _encode_hook(value: Any) -> Any:
    if isinstance(value, Quantity | Duration | MicroTime):
        return str(value)
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise NotImplementedError(f"type {type(value)!r} cannot be encoded as JSON")


@cache
def _decoder(kind: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    # ``Unstructured`` keeps fields that its class does not declare, and has its own decoder.
    own: Callable[[bytes | msgspec.Raw], Any] | None = getattr(kind, "decode_wire", None)
    return own or msgspec.json.Decoder(kind, dec_hook=_decode_hook).decode


_encoder = msgspec.json.Encoder(enc_hook=_encode_hook)


def decode(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON to an instance of ``kind``. Unknown fields are dropped.

    A top-level field that is null, such as ``status: null``, counts as absent.

    Args:
        data: UTF-8 JSON document.
        kind: type of the result.

    Raises:
        msgspec.ValidationError: a field does not have the type that ``kind`` declares: the message names its path.
            Also if ``data`` is nested too deeply, or the class of a field raised any exception.
        msgspec.DecodeError: ``data`` is not JSON.
    """
    # A malformed ``kind`` is an error of the program, not of one object.
    decoder = _decoder(kind)
    try:
        try:
            return decoder(data)
        except msgspec.ValidationError:
            content = msgspec.json.decode(data)
            if not isinstance(content, dict) or None not in content.values():
                raise
        document = cast("dict[str, Any]", content)
        present = {name: value for name, value in document.items() if value is not None}
        return decoder(msgspec.json.encode(present))
    except msgspec.DecodeError:
        raise
    except BaseException as error:
        raise _validation_error(error) from error


def _validation_error(error: BaseException) -> msgspec.ValidationError:
    """Return the error for an exception of a hook or the parser.

    One object must not end the list or watch of its kind, so any exception counts.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return msgspec.ValidationError(f"{type(error).__name__}: {error_text(error)}")


def decode_builtins(value: Any, kind: type[T]) -> T:
    """Convert dicts, lists and scalars to an instance of ``kind``.

    Args:
        value: object in wire form.
        kind: type of the result.

    Raises:
        msgspec.ValidationError: a field does not have the type that ``kind`` declares. The message names its path.
    """
    try:
        if hasattr(kind, "decode_wire"):
            return decode(encode(value), kind)
        return msgspec.convert(value, kind, dec_hook=_decode_hook)
    except msgspec.DecodeError:
        raise
    except BaseException as error:
        raise _validation_error(error) from error


def encode(value: Any) -> bytes:
    """Encode a value as JSON.

    Read types omit fields with their default value. Apply types omit unset fields.
    """
    own: Callable[[], Any] | None = getattr(value, "to_wire", None)
    return _encoder.encode(value if own is None else own())


def to_builtins(value: Any) -> Any:
    """Convert a value to dicts, lists and scalars. Omits the same fields as ``encode``."""
    # ``msgspec.to_builtins`` keeps tuples. A round trip through JSON takes about as long.
    return msgspec.json.decode(encode(value))
