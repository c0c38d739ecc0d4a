"""Syntax trees of CEL, as the engine writes them: ``cel.expr.ParsedExpr`` in the wire format of protocol buffers.

Source: https://github.com/google/cel-spec/blob/master/proto/cel/expr/syntax.proto
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_TYPE_URL = b"type.googleapis.com/cel.expr.ParsedExpr"


@dataclass(slots=True)
class Literal:
    """A constant; ``wire`` is its encoding, ``kind`` the name of its type."""

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
    test: bool = False


@dataclass(slots=True)
class Call:
    """A function, an operator, or with a target a method."""

    id: int
    function: str
    args: list[Node]
    target: Node | None = None


@dataclass(slots=True)
class ListOf:
    id: int
    items: list[Node]
    optional: bytes = b""


@dataclass(slots=True)
class Entry:
    id: int
    key: Node
    value: Node
    optional: bool = False


@dataclass(slots=True)
class MapOf:
    """A map; or a message, where it has a ``name``, which no rule can make."""

    id: int
    entries: list[Entry]
    name: str = ""


@dataclass(slots=True)
class Comprehension:
    """What the macros ``all``, ``exists``, ``map``, ``filter`` and the like become; some have a second variable."""

    id: int
    var: str
    range: Node
    accu: str
    init: Node
    condition: Node
    step: Node
    result: Node
    var2: str = ""


Node = Literal | Ident | Select | Call | ListOf | MapOf | Comprehension


@dataclass(slots=True)
class Tree:
    """An expression, and where its parts stand in the text."""

    root: Node
    positions: dict[int, int]
    source: bytes = b""


# Reading


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            length, at = _varint(data, at)
            yield number, data[at : at + length]
            at += length
        else:
            size = 8 if wire == 1 else 4
            yield number, data[at : at + size]
            at += size


@dataclass(slots=True)
class _Message:
    """The fields of a message by number."""

    found: dict[int, list[int | bytes]]

    @staticmethod
    def of(data: bytes) -> _Message:
        message = _Message({})
        for number, value in _fields(data):
            message.found.setdefault(number, []).append(value)
        return message

    def __contains__(self, number: int) -> bool:
        return number in self.found

    def number(self, field_number: int) -> int:
        found = self.found.get(field_number, [0])[-1]
        return found if isinstance(found, int) else 0

    def bytes(self, field_number: int) -> bytes:
        found = self.found.get(field_number, [b""])[-1]
        return found if isinstance(found, bytes) else b""

    def text(self, field_number: int) -> str:
        return self.bytes(field_number).decode()

    def all(self, field_number: int) -> list[bytes]:
        return [v for v in self.found.get(field_number, []) if isinstance(v, bytes)]


def read(serialized: bytes) -> Tree:
    """The tree of an expression that the engine has parsed and serialized."""
    parsed = _Message.of(_Message.of(serialized).bytes(2))
    source = parsed.bytes(3)
    positions: dict[int, int] = {}
    for entry in _Message.of(source).all(4):
        place = _Message.of(entry)
        positions[place.number(1)] = place.number(2)
    return Tree(_node(parsed.bytes(2)), positions, source)


_CONSTANTS = {1: "null_type", 2: "bool", 3: "int", 4: "uint", 5: "double", 6: "string", 7: "bytes"}


def _node(data: bytes) -> Node:
    message = _Message.of(data)
    ident = message.number(2)
    if 3 in message:
        return _literal(ident, message.bytes(3))
    if 4 in message:
        return Ident(ident, _Message.of(message.bytes(4)).text(1))
    if 5 in message:
        found = _Message.of(message.bytes(5))
        return Select(ident, _node(found.bytes(1)), found.text(2), bool(found.number(3)))
    if 6 in message:
        found = _Message.of(message.bytes(6))
        target = _node(found.bytes(1)) if 1 in found else None
        return Call(ident, found.text(2), [_node(a) for a in found.all(3)], target)
    if 7 in message:
        found = _Message.of(message.bytes(7))
        return ListOf(ident, [_node(i) for i in found.all(1)], found.bytes(2))
    if 9 in message:
        return _comprehension(ident, _Message.of(message.bytes(9)))
    found = _Message.of(message.bytes(8))
    return MapOf(ident, [_entry(_Message.of(e)) for e in found.all(2)], found.text(1))


def _literal(ident: int, wire: bytes) -> Literal:
    message = _Message.of(wire)
    number = next((n for n in _CONSTANTS if n in message), 1)
    return Literal(ident, _CONSTANTS[number], wire, message.text(6) if number == 6 else "")


def _entry(message: _Message) -> Entry:
    key: Node = _node(message.bytes(3)) if 3 in message else Literal(0, "string", b"", message.text(2))
    return Entry(message.number(1), key, _node(message.bytes(4)), bool(message.number(5)))


def _comprehension(ident: int, found: _Message) -> Comprehension:
    init, condition, step, result = (_node(found.bytes(n)) for n in (4, 5, 6, 7))
    return Comprehension(ident, found.text(1), _node(found.bytes(2)), found.text(3), init, condition, step, result)


# Writing


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _put(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return _number(number << 3) + _number(value) if value else b""
    data = value.encode() if isinstance(value, str) else value
    return _number(number << 3 | 2) + _number(len(data)) + data


def write(tree: Tree) -> bytes:
    """``tree`` as the engine reads it."""
    parsed = _put(2, _encoded(tree.root)) + _put(3, tree.source)
    return _put(1, _TYPE_URL) + _put(2, parsed)


def _encoded(node: Node) -> bytes:
    head = _put(2, node.id)
    match node:
        case Literal():
            return head + _put(3, node.wire)
        case Ident():
            return head + _put(4, _put(1, node.name))
        case Select():
            return head + _put(5, _put(1, _encoded(node.operand)) + _put(2, node.field) + _put(3, int(node.test)))
        case Call():
            target = b"" if node.target is None else _put(1, _encoded(node.target))
            return head + _put(6, target + _put(2, node.function) + b"".join(_put(3, _encoded(a)) for a in node.args))
        case ListOf():
            optional = _put(2, node.optional) if node.optional else b""
            return head + _put(7, b"".join(_put(1, _encoded(i)) for i in node.items) + optional)
        case MapOf():
            return head + _put(8, _put(1, node.name) + b"".join(_put(2, _encoded_entry(e)) for e in node.entries))
        case Comprehension():
            parts = (node.init, node.condition, node.step, node.result)
            written = b"".join(_put(n, _encoded(p)) for n, p in zip((4, 5, 6, 7), parts, strict=True))
            return head + _put(9, _put(1, node.var) + _put(2, _encoded(node.range)) + _put(3, node.accu) + written)


def _encoded_entry(entry: Entry) -> bytes:
    optional = _put(5, int(entry.optional))
    return _put(1, entry.id) + _put(3, _encoded(entry.key)) + _put(4, _encoded(entry.value)) + optional


def string(ident: int, text: str) -> Literal:
    """A literal text."""
    return Literal(ident, "string", _put(6, text), text)


def double(ident: int, value: float) -> Literal:
    """A literal number."""
    return Literal(ident, "double", _number(5 << 3 | 1) + struct.pack("<d", value))


def length(literal: Literal) -> int:
    """The size of a literal: characters, bytes; of everything else one."""
    if literal.kind == "bytes":
        return len(_Message.of(literal.wire).bytes(7))
    return len(literal.text) if literal.kind == "string" else 1


def whole(node: Node) -> int | None:
    """The value of a literal that is a whole number; None where it is none."""
    if not isinstance(node, Literal) or node.kind != "int":
        return None
    value = _Message.of(node.wire).number(3)
    return value - (1 << 64) if value >> 63 else value


def children(node: Node) -> list[Node]:
    """The parts of ``node``."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*([] if node.target is None else [node.target]), *node.args]
        case ListOf():
            return node.items
        case MapOf():
            return [part for e in node.entries for part in (e.key, e.value)]
        case Comprehension():
            return [node.range, node.init, node.condition, node.step, node.result]
        case _:
            return []
