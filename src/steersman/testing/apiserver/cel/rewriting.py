"""Expressions put in terms of what the engine has.

Kubernetes' own functions become calls of ours; macros with two variables become those with one; dates in data, which
the engine takes as texts, are converted where they are used; ``==`` and ``+`` heed lists whose order says nothing.
"""

from __future__ import annotations

import json
from typing import Any

from steersman.testing.apiserver import failures
from steersman.testing.apiserver.cel.checker import TWO_VARIABLES, Checked
from steersman.testing.apiserver.cel.declarations import Overload
from steersman.testing.apiserver.cel.functions import IMPLEMENTATIONS
from steersman.testing.apiserver.cel.syntax import (
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
from steersman.testing.apiserver.cel.types import Type

PREFIX = "k8s."
_TRUE, _FALSE, _ZERO, _ONE = b"\x10\x01", b"\x10\x00", b"\x18\x00", b"\x18\x01"
_RESULT = "@result"
# What the engine has for texts, and we for lists.
_NATIVE_FOR_TEXT = ("indexOf", "lastIndexOf", "reverse")
_ABSENT = ("optional.unwrap", "unwrapOpt")
_TIMES = {"timestamp": "timestamp", "duration": "duration"}


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
            case Ident():
                return self._timed(node, self._variable(node))
            case Select():
                selected = Select(node.id, self.of(node.operand), node.field, node.test)
                return selected if node.test else self._timed(node, selected)
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

    def _timed(self, node: Node, rewritten: Node) -> Node:
        kind = self._checked.types.get(node.id)
        # Data has texts for times; a time stays one.
        return self._call(_TIMES[kind.name], rewritten) if kind is not None and kind.name in _TIMES else rewritten

    def _variable(self, node: Ident) -> Node:
        if node.name != "oldSelf" or not self._optional_old:
            return node
        return self._either(
            self._ident("hasOldSelf"), self._optional("of", self._ident("oldSelf")), self._optional("none")
        )

    def _type(self, node: Node) -> Type | None:
        return self._checked.types.get(node.id)

    def _rewritten_call(self, node: Call) -> Node:
        overload = self._checked.called.get(node.id)
        if node.target is not None and node.function in TWO_VARIABLES and overload is None and len(node.args) > 2:
            return self._two_variables(node)
        if node.function in ("_==_", "_!=_", "_+_") and (shaped := self._unordered(node)) is not None:
            return shaped
        name = overload.name if overload is not None else node.function
        if name in _ABSENT:
            raise failures.refused_here(f"the CEL function {name}")
        target = None
        if node.target is not None and (overload is None or overload.member):
            target = self.of(node.target)
        args = [self.of(a) for a in node.args]
        if node.function == "sortBy" and target is not None:
            return self._sort_by(target, args)
        if (ours := self._replaced(name, overload, target, args)) is not None:
            return ours
        called = Call(node.id, node.function, args, target if target is not None else node.target)
        return self._timed(node, called) if node.function == "_[_]" else called

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
        if name in _NATIVE_FOR_TEXT and overload is not None and overload.params[0].name == "string":
            return None
        specific = f"{overload.params[0].name}.{name}" if overload is not None and overload.member else name
        found = specific if specific in IMPLEMENTATIONS else name
        return self._ours(found, *given) if found in IMPLEMENTATIONS else None

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
        var = args[0].name if isinstance(args[0], Ident) else ""
        return self._ours("sortBy", target, self._mapped(var, target, args[1]))

    # Macros

    def _mapped(self, var: str, over: Node, body: Node, condition: Node | None = None) -> Comprehension:
        """``over.map(var, condition, body)``."""
        step: Node = self._call("_+_", self._ident(_RESULT), ListOf(self._id(), [body]))
        if condition is not None:
            step = self._either(condition, step, self._ident(_RESULT))
        always = self._literal("bool", _TRUE)
        return self._fold(var, over, ListOf(self._id(), []), always, step, self._ident(_RESULT))

    def _two_variables(self, node: Call) -> Node:
        assert node.target is not None
        source = self._type(node.target)
        if source is None or source.name not in ("list", "map"):
            raise failures.refused_here(f"the CEL macro {node.function} of two variables on what is of any type")
        names = [a.name for a in node.args[:2] if isinstance(a, Ident)]
        kept, first = f"@source{self._id()}", names[0]
        over: Node = self._ident(kept)
        if source.name == "list":
            over = self._ours("@indices", over)
        parts: list[Node] = []
        for part in node.args[2:]:
            value = self._call("_[_]", self._ident(kept), self._ident(first))
            parts.append(self._bind(names[1], value, self.of(part)))
        return self._bind(kept, self.of(node.target), self._macro(node.function, first, over, parts))

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
            case "existsOne":
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

    # Lists without an order

    def _unordered(self, node: Call) -> Node | None:
        types = [self._type(a) for a in node.args]
        kind = next((t for t in types if t is not None and _shape(t) is not None), None)
        if kind is None:
            return None
        left, right = (self.of(a) for a in node.args)
        if node.function == "_+_":
            return self._ours("@union", left, right, string(self._id(), kind.tags)) if kind.tags else None
        same = self._ours("@same", left, right, string(self._id(), json.dumps(_shape(kind))))
        return self._call("!_", same) if node.function == "_!=_" else same


def _shape(found: Type) -> dict[str, Any] | None:
    """Where in a value there are lists without an order; None where there are none."""
    if found.name == "list":
        items = _shape(found.params[0])
        return {"unordered": bool(found.tags), "items": items} if found.tags or items else None
    if found.name == "map":
        values = _shape(found.params[1])
        return {"values": values} if values else None
    fields = {name: shape for name, inner in (found.fields or {}).items() if (shape := _shape(inner))}
    return {"fields": fields} if fields else None
