"""Macros that the engine does not know, as cel-go expands them: those with two variables, and ``sortBy``.

Source: ``ext/comprehensions.go`` and ``ext/lists.go`` of cel-go.
"""

from __future__ import annotations

from steersman_cel.checker import TWO_VARIABLES, Checked
from steersman_cel.declarations import Overload, functions
from steersman_cel.syntax import Call, Comprehension, Ident, ListOf, Literal, MapOf, Node
from steersman_cel.types import BOOL, INT, Type

_ACCU = "@result"
_INPUT = "@__sortBy_input__"
_TRUE, _FALSE = b"\x10\x01", b"\x10\x00"
_ZERO, _ONE = b"\x18\x00", b"\x18\x01"
_COUNTING = ("exists_one", "existsOne")
_INSERT = Overload("cel.@mapInsert", (), Type("map"), False)


class Expansion:
    """Expands calls one by one; what it makes has types and overloads in ``checked``, as all else has."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._last = max(checked.types, default=0)

    def of(self, node: Call) -> Comprehension | None:
        """What ``node`` expands to; None where it is no such macro."""
        if node.target is None:
            return None
        if node.function == "sortBy" and len(node.args) == 2:
            return self._sort_by(node, node.target)
        names = [a.name for a in node.args[:2] if isinstance(a, Ident)]
        if node.function not in TWO_VARIABLES or len(names) != 2 or len(node.args) < 3:
            return None
        return self._two_variables(node, node.target, names)

    # Making nodes

    def _put(self, kind: Type) -> int:
        self._last += 1
        self._checked.types[self._last] = kind
        return self._last

    def _literal(self, kind: Type, wire: bytes) -> Literal:
        return Literal(self._put(kind), kind.name, wire)

    def _ident(self, name: str, kind: Type) -> Ident:
        return Ident(self._put(kind), name)

    def _call(self, overload: Overload, kind: Type, *args: Node) -> Call:
        call = Call(self._put(kind), overload.name, list(args))
        self._checked.overloads[call.id] = [overload]
        return call

    def _known(self, name: str, first: str = "") -> Overload:
        return next(o for o in functions()[name] if not first or o.params[0].name == first)

    # Macros

    def _two_variables(self, node: Call, target: Node, names: list[str]) -> Comprehension:
        kind = self._checked.types[node.id]
        body = node.args[-1]
        condition = node.args[2] if len(node.args) == 4 else None
        accu = self._ident(_ACCU, INT if node.function in _COUNTING else kind)
        always: Node = self._literal(BOOL, _TRUE)
        result: Node = accu
        match node.function:
            case "all" | "exists":
                every = node.function == "all"
                init: Node = self._literal(BOOL, _TRUE if every else _FALSE)
                going = accu if every else self._call(self._known("!_"), BOOL, accu)
                always = self._call(self._known("@not_strictly_false"), BOOL, going)
                step: Node = self._call(self._known("_&&_" if every else "_||_"), BOOL, accu, body)
            case name if name in _COUNTING:
                init = self._literal(INT, _ZERO)
                more = self._call(self._known("_+_", "int"), INT, accu, self._literal(INT, _ONE))
                step = self._call(self._known("_?_:_"), INT, body, more, accu)
                result = self._call(self._known("_==_"), BOOL, accu, self._literal(INT, _ONE))
            case "transformList":
                init = ListOf(self._put(kind), [])
                step = self._call(self._known("_+_", "list"), kind, accu, ListOf(self._put(kind), [body]))
            case _:
                init = MapOf(self._put(kind), [])
                key = [self._ident(names[0], Type("dyn"))] if node.function == "transformMap" else []
                step = self._call(_INSERT, kind, accu, *key, body)
        if condition is not None:
            step = self._call(self._known("_?_:_"), kind, condition, step, accu)
        return Comprehension(node.id, names[0], target, _ACCU, init, always, step, result, var2=names[1])

    def _sort_by(self, node: Call, target: Node) -> Comprehension:
        variable, key = node.args
        name = variable.name if isinstance(variable, Ident) else ""
        kind, keys = self._checked.types[target.id], Type("list", (self._checked.types[key.id],))
        accu = self._ident(_ACCU, keys)
        step = self._call(self._known("_+_", "list"), keys, accu, ListOf(self._put(keys), [key]))
        always = self._literal(BOOL, _TRUE)
        given = self._ident(_INPUT, kind)
        mapped = Comprehension(
            self._put(keys), name, self._ident(_INPUT, kind), _ACCU, ListOf(self._put(keys), []), always, step, accu
        )
        ordered = Call(self._put(kind), "@sortByAssociatedKeys", [mapped], given)
        self._checked.overloads[ordered.id] = self._checked.overloads[node.id]
        never = self._literal(BOOL, _FALSE)
        bound = self._ident(_INPUT, kind)
        return Comprehension(node.id, "#unused", ListOf(self._put(kind), []), _INPUT, target, never, bound, ordered)
