"""Syntax trees of CEL: ``cel.expr.ParsedExpr`` in the protobuf wire format.

Source: https://github.com/google/cel-spec/blob/master/proto/cel/expr/syntax.proto
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

_TYPE_URL = b"type.googleapis.com/cel.expr.ParsedExpr"


@dataclass(slots=True)
class Literal:
    """A constant with its protobuf encoding and the name of its type."""

    id: int
    kind: str
    wire: bytes
    text: str = ""


@dataclass(slots=True)
class Ident:
    id: int
    name: str


@dataclass(slots=True)
class Select:
    """``operand.field``, or ``has(operand.field)``."""

    id: int
    operand: Node
    field: str
    is_presence_test: bool = False


@dataclass(slots=True)
class Call:
    """A call of a function, operator or method (with a target)."""

    id: int
    function: str
    args: list[Node]
    target: Node | None = None


@dataclass(slots=True)
class ListExpr:
    id: int
    items: list[Node]
    optional: bytes = b""


@dataclass(slots=True)
class MapEntry:
    id: int
    key: Node
    value: Node
    optional: bool = False


@dataclass(slots=True)
class MapExpr:
    """A map literal. With a ``name`` it is a message, which rules cannot create."""

    id: int
    entries: list[MapEntry]
    name: str = ""


@dataclass(slots=True)
class Comprehension:
    """The expansion of a macro such as ``all``, ``exists``, ``map`` or ``filter``."""

    id: int
    var: str
    range: Node
    accu: str
    init: Node
    condition: Node
    step: Node
    result: Node
    var2: str = ""


Node = Literal | Ident | Select | Call | ListExpr | MapExpr | Comprehension


@dataclass(slots=True)
class Tree:
    """An expression, and the source offset of each node."""

    root: Node
    positions: dict[int, int]
    source: bytes = b""


# Decoding


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    offset = 0
    while offset < len(data):
        tag, offset = _read_varint(data, offset)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, offset = _read_varint(data, offset)
            yield number, value
        elif wire == 2:
            length, offset = _read_varint(data, offset)
            yield number, data[offset : offset + length]
            offset += length
        else:
            size = 8 if wire == 1 else 4
            yield number, data[offset : offset + size]
            offset += size


@dataclass(slots=True)
class _Message:
    """Fields of a message by number."""

    fields: dict[int, list[int | bytes]]

    @staticmethod
    def decode(data: bytes) -> _Message:
        message = _Message({})
        for number, value in _read_fields(data):
            message.fields.setdefault(number, []).append(value)
        return message

    def __contains__(self, number: int) -> bool:
        return number in self.fields

    def number(self, field_number: int) -> int:
        found = self.fields.get(field_number, [0])[-1]
        return found if isinstance(found, int) else 0

    def bytes(self, field_number: int) -> bytes:
        found = self.fields.get(field_number, [b""])[-1]
        return found if isinstance(found, bytes) else b""

    def text(self, field_number: int) -> str:
        return self.bytes(field_number).decode()

    def all_bytes(self, field_number: int) -> list[bytes]:
        return [v for v in self.fields.get(field_number, []) if isinstance(v, bytes)]


def decode_tree(serialized: bytes) -> Tree:
    """Decode an expression that the engine parsed and serialized."""
    parsed = _Message.decode(_Message.decode(serialized).bytes(2))
    source = parsed.bytes(3)
    positions: dict[int, int] = {}
    for entry in _Message.decode(source).all_bytes(4):
        position_entry = _Message.decode(entry)
        positions[position_entry.number(1)] = position_entry.number(2)
    return Tree(_decode_node(parsed.bytes(2)), positions, source)


_CONSTANTS = {1: "null_type", 2: "bool", 3: "int", 4: "uint", 5: "double", 6: "string", 7: "bytes"}


def _decode_node(data: bytes) -> Node:
    message = _Message.decode(data)
    ident = message.number(2)
    if 3 in message:
        return _decode_literal(ident, message.bytes(3))
    if 4 in message:
        return Ident(ident, _Message.decode(message.bytes(4)).text(1))
    if 5 in message:
        found = _Message.decode(message.bytes(5))
        return Select(ident, _decode_node(found.bytes(1)), found.text(2), bool(found.number(3)))
    if 6 in message:
        found = _Message.decode(message.bytes(6))
        target = _decode_node(found.bytes(1)) if 1 in found else None
        return Call(ident, found.text(2), [_decode_node(a) for a in found.all_bytes(3)], target)
    if 7 in message:
        found = _Message.decode(message.bytes(7))
        return ListExpr(ident, [_decode_node(i) for i in found.all_bytes(1)], found.bytes(2))
    if 9 in message:
        return _decode_comprehension(ident, _Message.decode(message.bytes(9)))
    found = _Message.decode(message.bytes(8))
    return MapExpr(ident, [_decode_entry(_Message.decode(e)) for e in found.all_bytes(2)], found.text(1))


def _decode_literal(ident: int, wire: bytes) -> Literal:
    message = _Message.decode(wire)
    number = next((n for n in _CONSTANTS if n in message), 1)
    return Literal(ident, _CONSTANTS[number], wire, message.text(6) if number == 6 else "")


def _decode_entry(message: _Message) -> MapEntry:
    key: Node = _decode_node(message.bytes(3)) if 3 in message else Literal(0, "string", b"", message.text(2))
    return MapEntry(message.number(1), key, _decode_node(message.bytes(4)), bool(message.number(5)))


def _decode_comprehension(ident: int, found: _Message) -> Comprehension:
    init, condition, step, result = (_decode_node(found.bytes(n)) for n in (4, 5, 6, 7))
    return Comprehension(
        ident, found.text(1), _decode_node(found.bytes(2)), found.text(3), init, condition, step, result
    )


# Encoding


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _encode_field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return _encode_varint(number << 3) + _encode_varint(value) if value else b""
    data = value.encode() if isinstance(value, str) else value
    return _encode_varint(number << 3 | 2) + _encode_varint(len(data)) + data


def encode_tree(tree: Tree) -> bytes:
    """Encode ``tree`` for the engine."""
    parsed = _encode_field(2, _encode_node(tree.root)) + _encode_field(3, tree.source)
    return _encode_field(1, _TYPE_URL) + _encode_field(2, parsed)


def _encode_node(node: Node) -> bytes:
    head = _encode_field(2, node.id)
    match node:
        case Literal():
            return head + _encode_field(3, node.wire)
        case Ident():
            return head + _encode_field(4, _encode_field(1, node.name))
        case Select():
            return head + _encode_field(
                5,
                _encode_field(1, _encode_node(node.operand))
                + _encode_field(2, node.field)
                + _encode_field(3, int(node.is_presence_test)),
            )
        case Call():
            target = b"" if node.target is None else _encode_field(1, _encode_node(node.target))
            return head + _encode_field(
                6,
                target
                + _encode_field(2, node.function)
                + b"".join(_encode_field(3, _encode_node(a)) for a in node.args),
            )
        case ListExpr():
            optional = _encode_field(2, node.optional) if node.optional else b""
            return head + _encode_field(7, b"".join(_encode_field(1, _encode_node(i)) for i in node.items) + optional)
        case MapExpr():
            return head + _encode_field(
                8, _encode_field(1, node.name) + b"".join(_encode_field(2, _encode_entry(e)) for e in node.entries)
            )
        case Comprehension():
            parts = (node.init, node.condition, node.step, node.result)
            written = b"".join(_encode_field(n, _encode_node(p)) for n, p in zip((4, 5, 6, 7), parts, strict=True))
            return head + _encode_field(
                9,
                _encode_field(1, node.var)
                + _encode_field(2, _encode_node(node.range))
                + _encode_field(3, node.accu)
                + written,
            )


def _encode_entry(entry: MapEntry) -> bytes:
    optional = _encode_field(5, int(entry.optional))
    return (
        _encode_field(1, entry.id)
        + _encode_field(3, _encode_node(entry.key))
        + _encode_field(4, _encode_node(entry.value))
        + optional
    )


def string_literal(ident: int, text: str) -> Literal:
    """A string literal."""
    return Literal(ident, "string", _encode_field(6, text), text)


def double_literal(ident: int, value: float) -> Literal:
    """An integer literal."""
    return Literal(ident, "double", _encode_varint(5 << 3 | 1) + struct.pack("<d", value))


def literal_size(literal: Literal) -> int:
    """Size of a literal in characters or bytes. 1 for other types."""
    if literal.kind == "bytes":
        return len(_Message.decode(literal.wire).bytes(7))
    return len(literal.text) if literal.kind == "string" else 1


def integer_value(node: Node) -> int | None:
    """The value of an integer literal. None for other nodes."""
    if not isinstance(node, Literal) or node.kind != "int":
        return None
    value = _Message.decode(node.wire).number(3)
    return value - (1 << 64) if value >> 63 else value


def children(node: Node) -> list[Node]:
    """Child nodes of ``node``."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*([] if node.target is None else [node.target]), *node.args]
        case ListExpr():
            return node.items
        case MapExpr():
            return [part for e in node.entries for part in (e.key, e.value)]
        case Comprehension():
            return [node.range, node.init, node.condition, node.step, node.result]
        case _:
            return []


def selected_fields(node: Node, variables: Collection[str]) -> frozenset[str] | None:
    """Return the fields of ``variables`` that an expression selects.

    None if it reads a variable in another way.
    """
    if isinstance(node, Ident):
        return None if node.name in variables else frozenset()
    if isinstance(node, Select) and isinstance(node.operand, Ident) and node.operand.name in variables:
        return frozenset({node.field})
    return union_of_fields(selected_fields(part, variables) for part in children(node))


def union_of_fields(parts: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    """Return all fields. None if a part is None."""
    found = frozenset[str]()
    for fields in parts:
        if fields is None:
            return None
        found |= fields
    return found
