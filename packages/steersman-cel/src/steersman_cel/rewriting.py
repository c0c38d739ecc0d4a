"""Expressions put in terms of what the engine has.

Kubernetes' own functions become calls of ours; macros with two variables become those with one; dates in data, which
the engine takes as texts, are converted where they are used; ``==`` and ``+`` heed lists whose order says nothing.
"""

from __future__ import annotations

import json
from typing import Any

from steersman_cel.checker import TWO_VARIABLES, Checked
from steersman_cel.declarations import Overload
from steersman_cel.errors import refused_here
from steersman_cel.functions import IMPLEMENTATIONS
from steersman_cel.literals import nodes
from steersman_cel.syntax import (
    Call,
    Comprehension,
    Entry,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Node,
    Select,
    Tree,
    string,
)
from steersman_cel.types import DYN, Type

PREFIX = "k8s."
_TRUE, _FALSE = b"\x10\x01", b"\x10\x00"
_ZERO, _ONE, _THOUSAND = b"\x18\x00", b"\x18\x01", b"\x18\xe8\x07"
_RESULT = "@result"
_OURS = {name.rpartition(".")[2] for name in IMPLEMENTATIONS} | {"sortBy", "first", "last"}
# What neither data nor our functions can give the engine, and what makes it of a text or a number.
_MADE = ("timestamp", "duration", "uint")


def rewrite(tree: Tree, checked: Checked, *, optional_old: bool) -> Tree:
    """``tree`` as the engine can evaluate it.

    Args:
        optional_old: whether ``oldSelf`` is an optional; then ``hasOldSelf`` tells whether there is one.

    Raises:
        ApiError: 501, neither the engine nor we have a function that it uses.
    """
    rewriter = _Rewriter(tree, checked, optional_old)
    return Tree(rewriter.of(tree.root), tree.positions, tree.source)


class _Rewriter:
    def __init__(self, tree: Tree, checked: Checked, optional_old: bool) -> None:
        self._checked = checked
        self._optional_old = optional_old
        self._last = max(tree.positions, default=0)
        self._loses_times = any(self._takes_times(node) for node in nodes(tree.root))

    def _takes_times(self, node: Node) -> bool:
        """Whether it calls a function of ours on times, which come to it in whole microseconds."""
        if not isinstance(node, Call) or node.function not in _OURS:
            return False
        given = [*node.args, *([node.target] if node.target is not None else [])]
        return any(kind is None or _may_be_time(kind) for kind in map(self._type, given))

    # Making nodes

    def _id(self) -> int:
        self._last += 1
        return self._last

    def _ident(self, name: str) -> Ident:
        return Ident(self._id(), name)

    def _literal(self, kind: str, wire: bytes) -> Literal:
        return Literal(self._id(), kind, wire)

    def _call(self, function: str, *args: Node) -> Call:
        return Call(self._id(), function, list(args))

    def _ours(self, name: str, *args: Node) -> Call:
        return self._call(PREFIX + name, *args)

    def _method(self, function: str, target: Node, *args: Node) -> Call:
        return Call(self._id(), function, list(args), target)

    def _optional(self, function: str, *args: Node) -> Call:
        return self._method(function, self._ident("optional"), *args)

    def _either(self, condition: Node, yes: Node, no: Node) -> Call:
        return self._call("_?_:_", condition, yes, no)

    def _bind(self, name: str, value: Node, body: Node) -> Comprehension:
        never = self._literal("bool", _FALSE)
        return Comprehension(
            self._id(), "#unused", ListOf(self._id(), []), name, value, never, self._ident(name), body
        )

    def _fold(self, var: str, over: Node, init: Node, condition: Node, step: Node, result: Node) -> Comprehension:
        return Comprehension(self._id(), var, over, _RESULT, init, condition, step, result)

    # Expressions

    def of(self, node: Node) -> Node:
        """``node`` rewritten, with all within."""
        match node:
            case Literal():
                return node
            case Ident(name="optional_type"):
                return self._call("type", self._optional("none"))
            case Ident():
                # What is gathered step by step has all that it needs.
                gathered = node.name.startswith(("@", "__"))
                return node if gathered else self._restored(self._type(node), self._variable(node))
            case Select():
                name = self._checked.reserved.get(node.id, node.field)
                selected = Select(node.id, self.of(node.operand), name, node.test)
                return selected if node.test else self._restored(self._type(node), selected)
            case Call():
                return self._rewritten_call(node)
            case ListOf():
                return ListOf(node.id, [self.of(i) for i in node.items], node.optional)
            case MapOf():
                entries = [Entry(e.id, self.of(e.key), self.of(e.value), e.optional) for e in node.entries]
                return MapOf(node.id, entries, node.name)
            case Comprehension():
                parts = (node.init, node.condition, node.step, node.result)
                init, condition, step, result = map(self.of, parts)
                over = self.of(node.range)
                return Comprehension(node.id, node.var, over, node.accu, init, condition, step, result)

    def _restored(self, kind: Type | None, node: Node) -> Node:
        """``node`` of the type ``kind``, with times where it has texts for them."""
        if kind is None or not _is_made(kind):
            return node
        if kind.name == "list":
            var = f"@item{self._id()}"
            return self._mapped(var, node, self._restored(kind.params[0], self._ident(var)))
        if kind.name == "optional_type":
            var = f"@value{self._id()}"
            value = self._restored(kind.params[0], self._method("value", self._ident(var)))
            some = self._optional("of", value)
            chosen = self._either(self._method("hasValue", self._ident(var)), some, self._optional("none"))
            return self._bind(var, node, chosen)
        return self._call(kind.name, node)

    def _variable(self, node: Ident) -> Node:
        if node.name != "oldSelf" or not self._optional_old:
            return node
        return self._either(
            self._ident("hasOldSelf"), self._optional("of", self._ident("oldSelf")), self._optional("none")
        )

    def _type(self, node: Node) -> Type | None:
        return self._checked.types.get(node.id)

    def _rewritten_call(self, node: Call) -> Node:
        overload = self._checked.called(node)
        if node.target is not None and node.function in TWO_VARIABLES and overload is None and len(node.args) > 2:
            return self._two_variables(node, node.target)
        if node.function in ("_==_", "_!=_", "@in", "_+_") and (shaped := self._shaped(node)) is not None:
            return shaped
        if node.function == "sortBy" and node.target is not None:
            return self._sort_by(node.target, node.args)
        target = None
        if node.target is not None and (overload is None or overload.member):
            target = self.of(node.target)
        args = [self.of(a) for a in node.args]
        if node.function == "dyn" and any(map(_hides_times, map(self._type, node.args))):
            raise refused_here("an object with times in it as the CEL type dyn")
        if self._loses_times and node.function in ("timestamp", "duration") and self._type(node.args[0]) == DYN:
            raise refused_here(f"a {node.function} that CEL makes of the type dyn")
        if node.function == "_?._":
            name = self._checked.reserved.get(node.id)
            args[1] = string(self._id(), name) if name is not None else args[1]
        name = overload.name if overload is not None else node.function
        if (ours := self._replaced(name, overload, target, args)) is not None:
            return self._restored(self._type(node), ours)
        called = Call(node.id, node.function, args, target if target is not None else node.target)
        selects = node.function in ("_[_]", "_[?_]", "_?._")
        return self._restored(self._type(node), called) if selects else called

    def _replaced(self, name: str, overload: Overload | None, target: Node | None, args: list[Node]) -> Node | None:
        """A call of ours, or made of the engine's, in place of one of ``name``; None where the engine has it."""
        given = args if target is None else [target, *args]
        if name.startswith("format.") and target is None:
            return self._format(name.removeprefix("format."), args)
        if name == "validate" and target is not None:
            problems = self._ours("format.problems", *given)
            none = self._call("_==_", self._call("size", problems), self._literal("int", _ZERO))
            return self._either(none, self._optional("none"), self._optional("of", problems))
        if name in ("first", "last") and target is not None:
            return self._end(target, last=name == "last")
        if name in ("optional.unwrap", "unwrapOpt"):
            return self._unwrapped(*given)
        if overload is None:
            return self._ours(name, *given) if name in IMPLEMENTATIONS else None
        return self._typed(name, overload.params[0] if overload.params else None, given, member=overload.member)

    def _typed(self, name: str, first: Type | None, given: list[Node], *, member: bool) -> Node | None:
        """As ``_replaced``, where the type of the first argument decides."""
        kind = "" if first is None else first.name
        if kind in ("timestamp", "duration") and name == "string":
            return self._ours("@trimmed", self._call(name, *given))
        if self._loses_times and kind == "string" and name in ("timestamp", "duration"):
            # It becomes a time where it is restored.
            return self._ours(f"@exact.{name}", *given)
        if kind == "duration" and name == "int":
            return self._ours("@nanoseconds", self._call("string", *given))
        if kind == "duration" and name == "getMilliseconds":
            # The engine tells those of the last second alone.
            seconds = self._method("getSeconds", given[0])
            thousand = self._call("_*_", seconds, self._literal("int", _THOUSAND))
            return self._call("_+_", thousand, self._method(name, given[0]))
        if name == "sum" and first is not None and first.params[0].name == "uint":
            return self._ours("@unsignedSum", *given)
        found = f"{kind}.{name}" if member and f"{kind}.{name}" in IMPLEMENTATIONS else name
        return self._ours(found, *given) if found in IMPLEMENTATIONS else None

    def _unwrapped(self, items: Node) -> Node:
        var = f"@item{self._id()}"
        value = self._method("value", self._ident(var))
        return self._mapped(var, items, value, self._method("hasValue", self._ident(var)))

    def _format(self, name: str, args: list[Node]) -> Node:
        if name != "named":
            return string(self._id(), name)
        known = self._ours("format.isNamed", *args)
        return self._either(known, self._optional("of", *args), self._optional("none"))

    def _end(self, target: Node, *, last: bool) -> Node:
        size = self._call("size", target)
        position: Node = self._literal("int", _ZERO)
        if last:
            position = self._call("_-_", size, self._literal("int", _ONE))
        empty = self._call("_==_", size, self._literal("int", _ZERO))
        item = self._call("_[_]", target, position)
        return self._either(empty, self._optional("none"), self._optional("of", item))

    def _sort_by(self, target: Node, args: list[Node]) -> Node:
        items = self.of(target)
        keys = self._mapped(args[0].name if isinstance(args[0], Ident) else "", items, self.of(args[1]))
        kind = self._type(target)
        return self._restored(kind, self._ours("@sortByAssociatedKeys", items, keys))

    # Macros

    def _mapped(self, var: str, over: Node, body: Node, condition: Node | None = None) -> Comprehension:
        """``over.map(var, condition, body)``."""
        step: Node = self._call("_+_", self._ident(_RESULT), ListOf(self._id(), [body]))
        if condition is not None:
            step = self._either(condition, step, self._ident(_RESULT))
        always = self._literal("bool", _TRUE)
        return self._fold(var, over, ListOf(self._id(), []), always, step, self._ident(_RESULT))

    def _two_variables(self, node: Call, target: Node) -> Node:
        names = [a.name for a in node.args[:2] if isinstance(a, Ident)]
        kept, first = f"@source{self._id()}", names[0]
        source = self._type(target)
        over: Node = self._ident(kept)
        if source is None or source.name != "map":
            over = self._ours("@keys", over)
        parts: list[Node] = []
        for part in node.args[2:]:
            value = self._call("_[_]", self._ident(kept), self._ident(first))
            parts.append(self._bind(names[1], value, self.of(part)))
        return self._bind(kept, self.of(target), self._macro(node.function, first, over, parts))

    def _macro(self, name: str, var: str, over: Node, parts: list[Node]) -> Node:
        body, condition = parts[-1], parts[0] if len(parts) == 2 else None
        match name:
            case "transformList":
                return self._mapped(var, over, body, condition)
            case "transformMap":
                keys = self._mapped(var, over, self._ident(var), condition)
                return self._ours("@mapOf", keys, self._mapped(var, over, body, condition))
            case "transformMapEntry":
                return self._ours("@merged", self._mapped(var, over, body, condition))
            case "existsOne" | "exists_one":
                one = self._call("_+_", self._ident(_RESULT), self._literal("int", _ONE))
                step = self._either(body, one, self._ident(_RESULT))
                zero, always = self._literal("int", _ZERO), self._literal("bool", _TRUE)
                found = self._call("_==_", self._ident(_RESULT), self._literal("int", _ONE))
                return self._fold(var, over, zero, always, step, found)
            case _:
                return self._quantified(name, var, over, body)

    def _quantified(self, name: str, var: str, over: Node, body: Node) -> Node:
        every = name == "all"
        init = self._literal("bool", _TRUE if every else _FALSE)
        going: Node = self._ident(_RESULT)
        if not every:
            going = self._call("!_", going)
        condition = self._call("@not_strictly_false", going)
        step = self._call("_&&_" if every else "_||_", self._ident(_RESULT), body)
        return self._fold(var, over, init, condition, step, self._ident(_RESULT))

    # What is equal in a way of its own

    def _shaped(self, node: Call) -> Node | None:
        """``==``, ``!=``, ``in`` and ``+`` where the left side says what is equal."""
        left, right = node.args
        while isinstance(left, Call) and left.function == "dyn":
            left = left.args[0]
        kind = self._type(left)
        shape = None if kind is None else _shape(kind)
        if kind is None or shape is None:
            return None
        one, two = self.of(left), self.of(right)
        if node.function == "_+_":
            return self._ours("@union", one, two, string(self._id(), kind.tags)) if kind.tags else None
        told = string(self._id(), json.dumps(shape))
        if node.function == "@in":
            over = self._type(right)
            return self._ours("@within", one, two, told) if over is None or over.name != "map" else None
        same = self._ours("@same", one, two, told)
        return self._call("!_", same) if node.function == "_!=_" else same


def _is_made(kind: Type) -> bool:
    if kind.name in ("list", "optional_type"):
        return _is_made(kind.params[0])
    return kind.name in _MADE


def _may_be_time(kind: Type) -> bool:
    return kind.param or kind.name in ("timestamp", "duration", "dyn") or any(map(_may_be_time, kind.params))


def _hides_times(kind: Type | None) -> bool:
    """Whether values of the type have times that are told apart by the types of fields alone."""
    if kind is None:
        return False
    inner = [*kind.params, *(kind.fields or {}).values()]
    return any(t.name in ("timestamp", "duration") or _hides_times(t) for t in inner) and not _is_made(kind)


def _shape(found: Type) -> dict[str, Any] | None:
    """Where in a value there are quantities and lists without an order; None where there are none."""
    if found.name == "kubernetes.Quantity":
        return {"quantity": True}
    if found.name == "list":
        items = _shape(found.params[0])
        return {"unordered": bool(found.tags), "items": items} if found.tags or items else None
    if found.name == "map":
        values = _shape(found.params[1])
        return {"values": values} if values else None
    if found.name == "optional_type":
        if _shape(found.params[0]):
            raise refused_here(f"whether two values of the CEL type {found} are equal")
        return None
    fields = {name: shape for name, inner in (found.fields or {}).items() if (shape := _shape(inner))}
    return {"fields": fields} if fields else None
