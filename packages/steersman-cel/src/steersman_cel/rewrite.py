"""Rewrites expressions for cel-cpp.

Functions that cel-cpp lacks become calls of ``functions``. Macros with two variables become macros with one.
Timestamps and durations in data are strings, and are converted where they are used. ``==`` and ``+`` respect
unordered lists.
"""

from __future__ import annotations

import json
from typing import Any

from steersman_cel.checker import TWO_VARIABLE_MACROS, CheckedExpr
from steersman_cel.declarations import Overload
from steersman_cel.errors import not_implemented
from steersman_cel.functions import IMPLEMENTATIONS
from steersman_cel.literals import walk
from steersman_cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListExpr,
    Literal,
    MapEntry,
    MapExpr,
    Node,
    Select,
    Tree,
    string_literal,
)
from steersman_cel.types import DYN, Type

FUNCTION_PREFIX = "k8s."
_TRUE, _FALSE = b"\x10\x01", b"\x10\x00"
_ZERO, _ONE, _THOUSAND = b"\x18\x00", b"\x18\x01", b"\x18\xe8\x07"
_RESULT = "@result"
_EXTENSION_FUNCTIONS = {name.rpartition(".")[2] for name in IMPLEMENTATIONS} | {"sortBy", "first", "last"}
# Types that neither data nor custom functions can return. They are converted from strings or numbers.
_RESTORED_TYPES = ("timestamp", "duration", "uint")


def rewrite_tree(tree: Tree, checked: CheckedExpr, *, optional_old_self: bool) -> Tree:
    """Rewrite ``tree`` so that cel-cpp can evaluate it.

    Args:
        optional_old_self: ``oldSelf`` is an optional. It has a value if the variable ``hasOldSelf`` is true.

    Raises:
        ApiError: 501 if a function is not implemented.
    """
    rewriter = _Rewriter(tree, checked, optional_old_self)
    return Tree(rewriter.rewrite(tree.root), tree.positions, tree.source)


class _Rewriter:
    def __init__(self, tree: Tree, checked: CheckedExpr, optional_old: bool) -> None:
        self._checked = checked
        self._optional_old_self = optional_old
        self._last_id = max(tree.positions, default=0)
        self._needs_time_precision_check = any(self._passes_times_to_extension(node) for node in walk(tree.root))

    def _passes_times_to_extension(self, node: Node) -> bool:
        """Return True if a custom function receives times. The engine rounds them to microseconds."""
        if not isinstance(node, Call) or node.function not in _EXTENSION_FUNCTIONS:
            return False
        arguments = [*node.args, *([node.target] if node.target is not None else [])]
        return any(kind is None or _may_contain_time(kind) for kind in map(self._type, arguments))

    # Making nodes

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _ident(self, name: str) -> Ident:
        return Ident(self._new_id(), name)

    def _literal(self, kind: str, wire: bytes) -> Literal:
        return Literal(self._new_id(), kind, wire)

    def _call(self, function: str, *args: Node) -> Call:
        return Call(self._new_id(), function, list(args))

    def _extension_call(self, name: str, *args: Node) -> Call:
        return self._call(FUNCTION_PREFIX + name, *args)

    def _method(self, function: str, target: Node, *args: Node) -> Call:
        return Call(self._new_id(), function, list(args), target)

    def _optional(self, function: str, *args: Node) -> Call:
        return self._method(function, self._ident("optional"), *args)

    def _conditional(self, condition: Node, yes: Node, no: Node) -> Call:
        return self._call("_?_:_", condition, yes, no)

    def _bind(self, name: str, value: Node, body: Node) -> Comprehension:
        never_iterates = self._literal("bool", _FALSE)
        return Comprehension(
            self._new_id(),
            "#unused",
            ListExpr(self._new_id(), []),
            name,
            value,
            never_iterates,
            self._ident(name),
            body,
        )

    def _fold(
        self, var: str, iteration_range: Node, init: Node, condition: Node, step: Node, result: Node
    ) -> Comprehension:
        return Comprehension(self._new_id(), var, iteration_range, _RESULT, init, condition, step, result)

    # Expressions

    def rewrite(self, node: Node) -> Node:
        """Rewrite ``node`` and its descendants."""
        match node:
            case Literal():
                return node
            case Ident(name="optional_type"):
                return self._call("type", self._optional("none"))
            case Ident():
                # The accumulator has its final type already.
                is_accumulator = node.name.startswith(("@", "__"))
                return node if is_accumulator else self._restore_type(self._type(node), self._variable(node))
            case Select():
                name = self._checked.reserved.get(node.id, node.field)
                selected = Select(node.id, self.rewrite(node.operand), name, node.is_presence_test)
                return selected if node.is_presence_test else self._restore_type(self._type(node), selected)
            case Call():
                return self._rewrite_call(node)
            case ListExpr():
                return ListExpr(node.id, [self.rewrite(i) for i in node.items], node.optional)
            case MapExpr():
                entries = [
                    MapEntry(e.id, self.rewrite(e.key), self.rewrite(e.value), e.optional) for e in node.entries
                ]
                return MapExpr(node.id, entries, node.name)
            case Comprehension():
                parts = (node.init, node.condition, node.step, node.result)
                init, condition, step, result = map(self.rewrite, parts)
                iteration_range = self.rewrite(node.range)
                return Comprehension(node.id, node.var, iteration_range, node.accu, init, condition, step, result)

    def _restore_type(self, kind: Type | None, node: Node) -> Node:
        """Convert strings in ``node`` of type ``kind`` to times."""
        if kind is None or not _contains_restored_type(kind):
            return node
        if kind.name == "list":
            var = f"@item{self._new_id()}"
            return self._map_comprehension(var, node, self._restore_type(kind.params[0], self._ident(var)))
        if kind.name == "optional_type":
            var = f"@value{self._new_id()}"
            value = self._restore_type(kind.params[0], self._method("value", self._ident(var)))
            some = self._optional("of", value)
            chosen = self._conditional(self._method("hasValue", self._ident(var)), some, self._optional("none"))
            return self._bind(var, node, chosen)
        return self._call(kind.name, node)

    def _variable(self, node: Ident) -> Node:
        if node.name != "oldSelf" or not self._optional_old_self:
            return node
        return self._conditional(
            self._ident("hasOldSelf"), self._optional("of", self._ident("oldSelf")), self._optional("none")
        )

    def _type(self, node: Node) -> Type | None:
        return self._checked.types.get(node.id)

    def _rewrite_call(self, node: Call) -> Node:
        overload = self._checked.resolved_overload(node)
        if (
            node.target is not None
            and node.function in TWO_VARIABLE_MACROS
            and overload is None
            and len(node.args) > 2
        ):
            return self._two_variables(node, node.target)
        if (
            node.function in ("_==_", "_!=_", "@in", "_+_")
            and (shape_aware := self._rewrite_shape_aware(node)) is not None
        ):
            return shape_aware
        if node.function == "sortBy" and node.target is not None:
            return self._sort_by(node.target, node.args)
        target = None
        if node.target is not None and (overload is None or overload.member):
            target = self.rewrite(node.target)
        args = [self.rewrite(a) for a in node.args]
        if node.function == "dyn" and any(map(_hides_times, map(self._type, node.args))):
            raise not_implemented("an object with times in it as the CEL type dyn")
        if (
            self._needs_time_precision_check
            and node.function in ("timestamp", "duration")
            and self._type(node.args[0]) == DYN
        ):
            raise not_implemented(f"a {node.function} that CEL makes of the type dyn")
        if node.function == "_?._":
            name = self._checked.reserved.get(node.id)
            args[1] = string_literal(self._new_id(), name) if name is not None else args[1]
        name = overload.name if overload is not None else node.function
        if (replacement := self._replace_call(name, overload, target, args)) is not None:
            return self._restore_type(self._type(node), replacement)
        rewritten = Call(node.id, node.function, args, target if target is not None else node.target)
        selects = node.function in ("_[_]", "_[?_]", "_?._")
        return self._restore_type(self._type(node), rewritten) if selects else rewritten

    def _replace_call(
        self, name: str, overload: Overload | None, target: Node | None, args: list[Node]
    ) -> Node | None:
        """The replacement of a call of ``name``. None if the engine implements it."""
        arguments = args if target is None else [target, *args]
        if name.startswith("format.") and target is None:
            return self._format(name.removeprefix("format."), args)
        if name == "validate" and target is not None:
            problems = self._extension_call("format.problems", *arguments)
            none = self._call("_==_", self._call("size", problems), self._literal("int", _ZERO))
            return self._conditional(none, self._optional("none"), self._optional("of", problems))
        if name in ("first", "last") and target is not None:
            return self._first_or_last(target, last=name == "last")
        if name in ("optional.unwrap", "unwrapOpt"):
            return self._unwrap_optionals(*arguments)
        if overload is None:
            return self._extension_call(name, *arguments) if name in IMPLEMENTATIONS else None
        return self._replace_typed_call(
            name, overload.params[0] if overload.params else None, arguments, member=overload.member
        )

    def _replace_typed_call(
        self, name: str, first: Type | None, arguments: list[Node], *, member: bool
    ) -> Node | None:
        """The replacement of a call by the type of its first argument."""
        kind = "" if first is None else first.name
        if kind in ("timestamp", "duration") and name == "string":
            return self._extension_call("@trimmed", self._call(name, *arguments))
        if self._needs_time_precision_check and kind == "string" and name in ("timestamp", "duration"):
            # The caller converts the result to a time.
            return self._extension_call(f"@exact.{name}", *arguments)
        if kind == "duration" and name == "int":
            return self._extension_call("@nanoseconds", self._call("string", *arguments))
        if kind == "duration" and name == "getMilliseconds":
            # The engine returns only the milliseconds of the last second.
            seconds = self._method("getSeconds", arguments[0])
            thousand = self._call("_*_", seconds, self._literal("int", _THOUSAND))
            return self._call("_+_", thousand, self._method(name, arguments[0]))
        if name == "sum" and first is not None and first.params[0].name == "uint":
            return self._extension_call("@unsignedSum", *arguments)
        found = f"{kind}.{name}" if member and f"{kind}.{name}" in IMPLEMENTATIONS else name
        return self._extension_call(found, *arguments) if found in IMPLEMENTATIONS else None

    def _unwrap_optionals(self, items: Node) -> Node:
        var = f"@item{self._new_id()}"
        value = self._method("value", self._ident(var))
        return self._map_comprehension(var, items, value, self._method("hasValue", self._ident(var)))

    def _format(self, name: str, args: list[Node]) -> Node:
        if name != "named":
            return string_literal(self._new_id(), name)
        is_known = self._extension_call("format.isNamed", *args)
        return self._conditional(is_known, self._optional("of", *args), self._optional("none"))

    def _first_or_last(self, target: Node, *, last: bool) -> Node:
        size = self._call("size", target)
        position: Node = self._literal("int", _ZERO)
        if last:
            position = self._call("_-_", size, self._literal("int", _ONE))
        empty = self._call("_==_", size, self._literal("int", _ZERO))
        item = self._call("_[_]", target, position)
        return self._conditional(empty, self._optional("none"), self._optional("of", item))

    def _sort_by(self, target: Node, args: list[Node]) -> Node:
        items = self.rewrite(target)
        keys = self._map_comprehension(
            args[0].name if isinstance(args[0], Ident) else "", items, self.rewrite(args[1])
        )
        kind = self._type(target)
        return self._restore_type(kind, self._extension_call("@sortByAssociatedKeys", items, keys))

    # Macros

    def _map_comprehension(
        self, var: str, iteration_range: Node, body: Node, condition: Node | None = None
    ) -> Comprehension:
        """``over.map(var, condition, body)``."""
        step: Node = self._call("_+_", self._ident(_RESULT), ListExpr(self._new_id(), [body]))
        if condition is not None:
            step = self._conditional(condition, step, self._ident(_RESULT))
        always = self._literal("bool", _TRUE)
        return self._fold(var, iteration_range, ListExpr(self._new_id(), []), always, step, self._ident(_RESULT))

    def _two_variables(self, node: Call, target: Node) -> Node:
        names = [a.name for a in node.args[:2] if isinstance(a, Ident)]
        source_variable, first = f"@source{self._new_id()}", names[0]
        source = self._type(target)
        iteration_range: Node = self._ident(source_variable)
        if source is None or source.name != "map":
            iteration_range = self._extension_call("@keys", iteration_range)
        parts: list[Node] = []
        for part in node.args[2:]:
            value = self._call("_[_]", self._ident(source_variable), self._ident(first))
            parts.append(self._bind(names[1], value, self.rewrite(part)))
        return self._bind(
            source_variable, self.rewrite(target), self._macro(node.function, first, iteration_range, parts)
        )

    def _macro(self, name: str, var: str, iteration_range: Node, parts: list[Node]) -> Node:
        body, condition = parts[-1], parts[0] if len(parts) == 2 else None
        match name:
            case "transformList":
                return self._map_comprehension(var, iteration_range, body, condition)
            case "transformMap":
                keys = self._map_comprehension(var, iteration_range, self._ident(var), condition)
                return self._extension_call(
                    "@mapOf", keys, self._map_comprehension(var, iteration_range, body, condition)
                )
            case "transformMapEntry":
                return self._extension_call("@merged", self._map_comprehension(var, iteration_range, body, condition))
            case "existsOne" | "exists_one":
                increment = self._call("_+_", self._ident(_RESULT), self._literal("int", _ONE))
                step = self._conditional(body, increment, self._ident(_RESULT))
                zero, always = self._literal("int", _ZERO), self._literal("bool", _TRUE)
                found = self._call("_==_", self._ident(_RESULT), self._literal("int", _ONE))
                return self._fold(var, iteration_range, zero, always, step, found)
            case _:
                return self._quantified(name, var, iteration_range, body)

    def _quantified(self, name: str, var: str, iteration_range: Node, body: Node) -> Node:
        is_all = name == "all"
        init = self._literal("bool", _TRUE if is_all else _FALSE)
        loop_condition: Node = self._ident(_RESULT)
        if not is_all:
            loop_condition = self._call("!_", loop_condition)
        condition = self._call("@not_strictly_false", loop_condition)
        step = self._call("_&&_" if is_all else "_||_", self._ident(_RESULT), body)
        return self._fold(var, iteration_range, init, condition, step, self._ident(_RESULT))

    # Custom equality

    def _rewrite_shape_aware(self, node: Call) -> Node | None:
        """Rewrite ``==``, ``!=``, ``in`` and ``+`` with the left operand's equality."""
        left, right = node.args
        while isinstance(left, Call) and left.function == "dyn":
            left = left.args[0]
        kind = self._type(left)
        shape = None if kind is None else _equality_shape(kind)
        if kind is None or shape is None:
            return None
        left_node, right_node = self.rewrite(left), self.rewrite(right)
        if node.function == "_+_":
            return (
                self._extension_call(
                    "@union", left_node, right_node, string_literal(self._new_id(), kind.list_semantics)
                )
                if kind.list_semantics
                else None
            )
        shape_literal = string_literal(self._new_id(), json.dumps(shape))
        if node.function == "@in":
            container_type = self._type(right)
            return (
                self._extension_call("@within", left_node, right_node, shape_literal)
                if container_type is None or container_type.name != "map"
                else None
            )
        same = self._extension_call("@same", left_node, right_node, shape_literal)
        return self._call("!_", same) if node.function == "_!=_" else same


def _contains_restored_type(kind: Type) -> bool:
    if kind.name in ("list", "optional_type"):
        return _contains_restored_type(kind.params[0])
    return kind.name in _RESTORED_TYPES


def _may_contain_time(kind: Type) -> bool:
    return (
        kind.is_type_param
        or kind.name in ("timestamp", "duration", "dyn")
        or any(map(_may_contain_time, kind.params))
    )


def _hides_times(kind: Type | None) -> bool:
    """Return True if values have times that only field types identify."""
    if kind is None:
        return False
    inner = [*kind.params, *(kind.fields or {}).values()]
    return any(t.name in ("timestamp", "duration") or _hides_times(t) for t in inner) and not _contains_restored_type(
        kind
    )


def _equality_shape(found: Type) -> dict[str, Any] | None:
    """Positions of quantities and unordered lists in a value. None if there are none."""
    if found.name == "kubernetes.Quantity":
        return {"quantity": True}
    if found.name == "list":
        items = _equality_shape(found.params[0])
        return {"unordered": bool(found.list_semantics), "items": items} if found.list_semantics or items else None
    if found.name == "map":
        values = _equality_shape(found.params[1])
        return {"values": values} if values else None
    if found.name == "optional_type":
        if _equality_shape(found.params[0]):
            raise not_implemented(f"whether two values of the CEL type {found} are equal")
        return None
    fields = {name: shape for name, inner in (found.fields or {}).items() if (shape := _equality_shape(inner))}
    return {"fields": fields} if fields else None
