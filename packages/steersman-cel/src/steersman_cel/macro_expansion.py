"""Expansion of macros that cel-cpp lacks: macros with two variables, and ``sortBy``.

Source: ``ext/comprehensions.go`` and ``ext/lists.go`` of cel-go.
"""

from __future__ import annotations

from steersman_cel.checker import TWO_VARIABLE_MACROS, CheckedExpr
from steersman_cel.declarations import Overload, declared_functions
from steersman_cel.syntax_tree import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node
from steersman_cel.types import BOOL, INT, Type

_ACCUMULATOR = "@result"
_SORT_INPUT = "@__sortBy_input__"
_TRUE, _FALSE = b"\x10\x01", b"\x10\x00"
_ZERO, _ONE = b"\x18\x00", b"\x18\x01"
_EXISTS_ONE = ("exists_one", "existsOne")
_INSERT = Overload("cel.@mapInsert", (), Type("map"), False)


class MacroExpander:
    """Expands calls, and adds types and overloads of new nodes to ``checked``."""

    def __init__(self, checked: CheckedExpr) -> None:
        self._checked = checked
        self._last_id = max(checked.types, default=0)

    def expand(self, node: Call) -> Comprehension | None:
        """The expansion of ``node``. None if it is not such a macro."""
        if node.target is None:
            return None
        if node.function == "sortBy" and len(node.args) == 2:
            return self._sort_by(node, node.target)
        names = [a.name for a in node.args[:2] if isinstance(a, Ident)]
        if node.function not in TWO_VARIABLE_MACROS or len(names) != 2 or len(node.args) < 3:
            return None
        return self._two_variables(node, node.target, names)

    # Making nodes

    def _new_id(self, kind: Type) -> int:
        self._last_id += 1
        self._checked.types[self._last_id] = kind
        return self._last_id

    def _literal(self, kind: Type, wire: bytes) -> Literal:
        return Literal(self._new_id(kind), kind.name, wire)

    def _ident(self, name: str, kind: Type) -> Ident:
        return Ident(self._new_id(kind), name)

    def _call(self, overload: Overload, kind: Type, *args: Node) -> Call:
        call = Call(self._new_id(kind), overload.name, list(args))
        self._checked.overloads[call.id] = [overload]
        return call

    def _declared_overload(self, name: str, first: str = "") -> Overload:
        return next(o for o in declared_functions()[name] if not first or o.params[0].name == first)

    # Macros

    def _two_variables(self, node: Call, target: Node, names: list[str]) -> Comprehension:
        kind = self._checked.types[node.id]
        body = node.args[-1]
        condition = node.args[2] if len(node.args) == 4 else None
        accu = self._ident(_ACCUMULATOR, INT if node.function in _EXISTS_ONE else kind)
        always: Node = self._literal(BOOL, _TRUE)
        result: Node = accu
        match node.function:
            case "all" | "exists":
                is_all = node.function == "all"
                init: Node = self._literal(BOOL, _TRUE if is_all else _FALSE)
                loop_condition = accu if is_all else self._call(self._declared_overload("!_"), BOOL, accu)
                always = self._call(self._declared_overload("@not_strictly_false"), BOOL, loop_condition)
                step: Node = self._call(self._declared_overload("_&&_" if is_all else "_||_"), BOOL, accu, body)
            case name if name in _EXISTS_ONE:
                init = self._literal(INT, _ZERO)
                increment = self._call(self._declared_overload("_+_", "int"), INT, accu, self._literal(INT, _ONE))
                step = self._call(self._declared_overload("_?_:_"), INT, body, increment, accu)
                result = self._call(self._declared_overload("_==_"), BOOL, accu, self._literal(INT, _ONE))
            case "transformList":
                init = ListExpr(self._new_id(kind), [])
                step = self._call(
                    self._declared_overload("_+_", "list"), kind, accu, ListExpr(self._new_id(kind), [body])
                )
            case _:
                init = MapExpr(self._new_id(kind), [])
                key = [self._ident(names[0], Type("dyn"))] if node.function == "transformMap" else []
                step = self._call(_INSERT, kind, accu, *key, body)
        if condition is not None:
            step = self._call(self._declared_overload("_?_:_"), kind, condition, step, accu)
        return Comprehension(node.id, names[0], target, _ACCUMULATOR, init, always, step, result, var2=names[1])

    def _sort_by(self, node: Call, target: Node) -> Comprehension:
        variable, key = node.args
        name = variable.name if isinstance(variable, Ident) else ""
        kind, keys = self._checked.types[target.id], Type("list", (self._checked.types[key.id],))
        accu = self._ident(_ACCUMULATOR, keys)
        step = self._call(self._declared_overload("_+_", "list"), keys, accu, ListExpr(self._new_id(keys), [key]))
        always = self._literal(BOOL, _TRUE)
        sort_input = self._ident(_SORT_INPUT, kind)
        mapped = Comprehension(
            self._new_id(keys),
            name,
            self._ident(_SORT_INPUT, kind),
            _ACCUMULATOR,
            ListExpr(self._new_id(keys), []),
            always,
            step,
            accu,
        )
        ordered = Call(self._new_id(kind), "@sortByAssociatedKeys", [mapped], sort_input)
        self._checked.overloads[ordered.id] = self._checked.overloads[node.id]
        never = self._literal(BOOL, _FALSE)
        bound = self._ident(_SORT_INPUT, kind)
        return Comprehension(
            node.id, "#unused", ListExpr(self._new_id(kind), []), _SORT_INPUT, target, never, bound, ordered
        )
