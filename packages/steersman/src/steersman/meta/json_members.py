"""Splits a JSON document into its members without recursion.

JSON parsers recurse, and Python limits the depth. A document that one value nests too deeply can still be split here,
so that the value affects no other one. Parsing is many times slower than ``decode``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_STRING_PATTERN = re.compile(_STRING, re.DOTALL)
_SCALAR_PATTERN = re.compile(rb"[^\s,:{}\[\]]++")
_BRACKET_PATTERN = re.compile(rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+(?:([{\[])|[}\]])", re.DOTALL)
_SEPARATORS_PATTERN = re.compile(rb"[\s,:]*+")
_OPENING = (ord("{"), ord("["))


def json_members(document: bytes | msgspec.Raw) -> Iterator[tuple[str, bytes]]:
    """Yield key and JSON of each member of an object or array.

    Items of an array have empty keys.

    Raises:
        msgspec.DecodeError: the document is incomplete, or neither an object nor an array.
    """
    text = bytes(document).strip()
    if not text or text[0] not in _OPENING:
        raise msgspec.DecodeError("JSON is neither an object nor an array")
    position = 1
    while True:
        position = _skip(text, _SEPARATORS_PATTERN, position)
        if text[position : position + 1] in (b"}", b"]"):
            return
        key = ""
        if text[0] == _OPENING[0]:
            end = _skip(text, _STRING_PATTERN, position)
            key = msgspec.json.decode(text[position:end], type=str)
            position = _skip(text, _SEPARATORS_PATTERN, end)
        end = _value_end(text, position)
        yield key, text[position:end]
        position = end


def scalar_members(document: bytes | msgspec.Raw) -> bytes:
    """Return a JSON object without its members that are objects or arrays.

    Raises:
        msgspec.DecodeError: the document is incomplete or not an object.
    """
    scalars = {key: msgspec.Raw(value) for key, value in json_members(document) if value[0] not in _OPENING}
    return msgspec.json.encode(scalars)


def _value_end(text: bytes, position: int) -> int:
    if text[position : position + 1] == b'"':
        return _skip(text, _STRING_PATTERN, position)
    if text[position : position + 1] not in (b"{", b"["):
        return _skip(text, _SCALAR_PATTERN, position)
    depth, expected = 0, position
    for match in _BRACKET_PATTERN.finditer(text, position):
        if match.start() != expected:
            # The pattern skipped a string without an end.
            break
        expected = match.end()
        depth += 1 if match[1] else -1
        if depth == 0:
            return expected
    raise msgspec.DecodeError("JSON is incomplete")


def _skip(text: bytes, pattern: re.Pattern[bytes], position: int) -> int:
    """Return the position after ``pattern``."""
    match = pattern.match(text, position)
    if match is None:
        raise msgspec.DecodeError("JSON is incomplete")
    return match.end()
