"""Type checker for expressions.

Source: ``checker/checker.go`` and ``checker/types.go`` of cel-go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from steersman_cel.declarations import Overload, declared_functions
from steersman_cel.errors import not_implemented
from steersman_cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Node,
    Select,
    Tree,
)
from steersman_cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    Type,
    list_of,
    map_of,
    optional_of,
)

_TYPE_IDENTIFIERS = {
    **{name: Type(name) for name in ("bool", "bytes", "double", "duration", "int", "null_type", "string")},
    **{name: Type(name) for name in ("timestamp", "type", "uint")},
    "google.protobuf.Duration": Type("duration"),
    "google.protobuf.Timestamp": Type("timestamp"),
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "optional_type": optional_of(DYN),
}
_NULLABLE = ("timestamp", "duration")
TWO_VARIABLE_MACROS = (
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "transformList",
    "transformMap",
    "transformMapEntry",
)


@dataclass(slots=True)
class CheckedExpr:
    """The result of type checking.

    Attributes:
        type: type of the expression.
        types: type of each node, by id.
        overloads: candidate overloads of each call, by id.
        errors: errors with their offset in the source.
        names: variables in the expression.
        reserved: names in data of fields that are reserved words, by the id of the selection.
    """

    type: Type = DYN
    types: dict[int, Type] = field(default_factory=dict[int, Type])
    overloads: dict[int, list[Overload]] = field(default_factory=dict[int, list[Overload]])
    errors: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    names: set[str] = field(default_factory=set[str])
    reserved: dict[int, str] = field(default_factory=dict[int, str])

    def resolved_overload(self, node: Node) -> Overload | None:
        """The overload of a call if it is unambiguous."""
        found = self.overloads.get(node.id, ())
        return found[0] if len(found) == 1 else None


def check_types(tree: Tree, variables: Mapping[str, Type]) -> CheckedExpr:
    """Infer the types of ``tree``.

    Args:
        tree: expression.
        variables: types of the variables in scope.
    """
    checker = _Checker(tree)
    found = checker.check(tree.root, dict(variables))
    result = checker.result
    result.type = checker.substitute(found)
    result.types = {ident: checker.substitute(t) for ident, t in result.types.items()}
    return result


class _Checker:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._bindings: dict[str, Type] = {}
        self._type_param_count = 0
        self.result = CheckedExpr()

    # Reporting

    def _report_error(self, ident: int, text: str, *, offset: int = 0) -> Type:
        self.result.errors.append((self._tree.positions.get(ident, 0) + offset, text))
        return ERROR

    # Parameters

    def substitute(self, found: Type) -> Type:
        """``found`` with bound type parameters replaced. Unbound ones become ``dyn``."""
        if found.is_type_param:
            return self.substitute(self._bindings[found.name]) if found.name in self._bindings else DYN
        if not found.params:
            return found
        return Type(found.name, tuple(map(self.substitute, found.params)), list_semantics=found.list_semantics)

    def _resolve_bound(self, found: Type) -> Type:
        while found.is_type_param and found.name in self._bindings:
            found = self._bindings[found.name]
        return found

    def _instance(self, overload: Overload) -> Overload:
        """``overload`` with fresh type parameters."""
        self._type_param_count += 1
        suffix = f"%{self._type_param_count}"

        def renamed(found: Type) -> Type:
            if found.is_type_param:
                return Type(found.name + suffix, is_type_param=True)
            return Type(
                found.name, tuple(map(renamed, found.params)), found.fields, list_semantics=found.list_semantics
            )

        return overload._replace(params=tuple(map(renamed, overload.params)), result=renamed(overload.result))

    def _fresh_type_param(self) -> Type:
        self._type_param_count += 1
        return Type(f"T%{self._type_param_count}", is_type_param=True)

    def _is_assignable(self, target: Type, source: Type) -> bool:
        """Return True if ``given`` is assignable to ``wanted``. Binds type parameters."""
        target, source = self._resolve_bound(target), self._resolve_bound(source)
        if target.is_type_param and target == source:
            return True
        for param, other in ((source, target), (target, source)):
            if param.is_type_param:
                if not other.is_type_param and self._occurs_in(param, other):
                    return False
                self._bindings[param.name] = other
                return True
        if "dyn" in (target.name, source.name) or "!error!" in (target.name, source.name):
            return True
        if source.name == "null_type" and (target.fields is not None or target.name in _NULLABLE):
            return True
        if target.name == "null_type" and (source.fields is not None or source.name in _NULLABLE):
            return True
        if target.name == source.name == "type":
            return True
        if target.name != source.name or len(target.params) != len(source.params):
            return False
        return all(map(self._is_assignable, target.params, source.params))

    def _occurs_in(self, param: Type, found: Type) -> bool:
        found = self._resolve_bound(found)
        return found == param or any(self._occurs_in(param, p) for p in found.params)

    def _are_assignable(self, targets: Sequence[Type], sources: Sequence[Type]) -> bool:
        before = dict(self._bindings)
        if len(targets) == len(sources) and all(map(self._is_assignable, targets, sources)):
            return True
        self._bindings = before
        return False

    # Expressions

    def check(self, node: Node, scope: dict[str, Type]) -> Type:
        """The type of ``node`` with the variables of ``scope``."""
        match node:
            case Literal():
                found = Type(node.kind)
            case Ident():
                found = self._ident(node, scope)
            case Select():
                found = self._select(node, scope)
            case Call():
                found = self._call(node, scope)
            case ListExpr():
                found = self._list(node, scope)
            case MapExpr():
                found = self._map(node, scope)
            case Comprehension():
                found = self._comprehension(node, scope)
        self.result.types[node.id] = found
        return found

    def _ident(self, node: Ident, scope: dict[str, Type]) -> Type:
        name = node.name.removeprefix(".")
        if name in scope:
            self.result.names.add(name)
            return scope[name]
        if name in _TYPE_IDENTIFIERS:
            return Type("type", (_TYPE_IDENTIFIERS[name],))
        return self._report_error(node.id, f"undeclared reference to '{name}' (in container '')")

    def _select(self, node: Select, scope: dict[str, Type]) -> Type:
        qualified = _qualified_name(node)
        if qualified in _TYPE_IDENTIFIERS and qualified.split(".")[0] not in scope:
            return Type("type", (_TYPE_IDENTIFIERS[qualified],))
        if not node.field.isidentifier():
            return self._report_error(node.id, "unsupported syntax: '`'", offset=1)
        operand = self.check(node.operand, scope)
        found = self._field(node.id, operand, node.field, optional=False)
        return BOOL if node.is_presence_test else found

    def _field(self, ident: int, operand: Type, name: str, *, optional: bool) -> Type:
        found = self._resolve_bound(operand)
        wrapped = found.name == "optional_type"
        target = self._resolve_bound(found.params[0]) if wrapped else found
        result = DYN
        if target.fields is not None:
            if name not in target.fields and f"__{name}__" in target.fields:
                name = self.result.reserved[ident] = f"__{name}__"
            if name not in target.fields:
                return self._report_error(ident, f"undefined field '{name}'")
            result = target.fields[name]
        elif target.name == "map":
            result = target.params[1]
        elif target.is_type_param:
            self._is_assignable(target, DYN)
        elif target.name == "!error!":
            return ERROR
        elif target.name != "dyn":
            return self._report_error(ident, f"type '{self.substitute(target)}' does not support field selection")
        return optional_of(result) if (optional or wrapped) else result

    def _call(self, node: Call, scope: dict[str, Type]) -> Type:
        if node.function == "_?._":
            name = node.args[1]
            operand = self.check(node.args[0], scope)
            return self._field(node.id, operand, name.text if isinstance(name, Literal) else "", optional=True)
        declared = declared_functions()
        qualified = _qualified_name(node.target) if node.target is not None else ""
        if qualified and qualified.split(".")[0] not in scope and f"{qualified}.{node.function}" in declared:
            name = f"{qualified}.{node.function}"
            return self._resolve(node, declared[name], [self.check(a, scope) for a in node.args], name, member=False)
        if node.target is not None and node.function in TWO_VARIABLE_MACROS and _macro_variables(node) is not None:
            return self._two_variables(node, scope)
        if node.target is not None and node.function == "sortBy" and len(node.args) == 2:
            return self._sort_by(node, node.target, scope)
        target = [] if node.target is None else [self.check(node.target, scope)]
        if node.function not in declared:
            for argument in node.args:
                self.check(argument, scope)
            return self._report_error(node.id, f"undeclared reference to '{node.function}' (in container '')")
        arguments = [self.check(a, scope) for a in node.args]
        if node.function in ("_&&_", "_||_"):
            return self._logical(node, arguments)
        result = self._resolve(
            node, declared[node.function], [*target, *arguments], node.function, member=bool(target)
        )
        # Concatenation keeps the list semantics of the left operand.
        tags = self._resolve_bound(arguments[0]).list_semantics if node.function == "_+_" else ""
        return Type(result.name, result.params, list_semantics=tags) if tags else result

    def _logical(self, node: Call, argument_types: list[Type]) -> Type:
        for part, found in zip(node.args, argument_types, strict=True):
            if not self._is_assignable(BOOL, found):
                self._report_error(part.id, f"expected type 'bool' but found '{self.substitute(found)}'")
        return BOOL

    def _sort_by(self, node: Call, target: Node, scope: dict[str, Type]) -> Type:
        source = self.check(target, scope)
        variable, key = node.args
        if not isinstance(variable, Ident):
            return self._report_error(variable.id, "argument is not an identifier")
        found = self.check(key, {**scope, variable.name: self._iteration_types(target.id, source)[0]})
        self.result.types[variable.id] = DYN
        name = "@sortByAssociatedKeys"
        return self._resolve(node, declared_functions()[name], [source, list_of(found)], name, member=True)

    def _resolve(
        self, node: Call, overloads: list[Overload], argument_types: list[Type], name: str, *, member: bool
    ) -> Type:
        result: Type | None = None
        for overload in overloads:
            if overload.member != member:
                continue
            instance = self._instance(overload)
            if not self._are_assignable(instance.params, argument_types):
                continue
            self.result.overloads.setdefault(node.id, []).append(overload)
            if result is None:
                result = instance.result
            elif self.substitute(result) != self.substitute(instance.result):
                result = DYN
        if result is not None:
            return result
        shown = [
            str(self.substitute(t)) if not self._resolve_bound(t).is_type_param else "dyn" for t in argument_types
        ]
        signature = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
        return self._report_error(node.id, f"found no matching overload for '{name}' applied to '{signature}'")

    def _list(self, node: ListExpr, scope: dict[str, Type]) -> Type:
        item: Type | None = None
        optional = set(node.optional)
        for position, part in enumerate(node.items):
            found = self.check(part, scope)
            if position in optional and self._resolve_bound(found).name == "optional_type":
                found = self._resolve_bound(found).params[0]
            item = self._join_types(item, found)
        return list_of(item or self._fresh_type_param())

    def _map(self, node: MapExpr, scope: dict[str, Type]) -> Type:
        if node.name.startswith("google.protobuf."):
            raise not_implemented(f"the message {node.name} in CEL")
        if node.name:
            # cel-go reports the position of the bracket.
            text = f"undeclared reference to '{node.name}' (in container '')"
            return self._report_error(node.id, text, offset=len(node.name))
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._join_types(key, self.check(entry.key, scope))
            found = self.check(entry.value, scope)
            if entry.optional and self._resolve_bound(found).name == "optional_type":
                found = self._resolve_bound(found).params[0]
            value = self._join_types(value, found)
        return map_of(key or self._fresh_type_param(), value or self._fresh_type_param())

    def _join_types(self, previous: Type | None, found: Type) -> Type:
        if previous is None:
            return found
        if self._are_assignable([previous], [found]):
            return (
                found
                if self._resolve_bound(previous).name == "null_type" or self._resolve_bound(found).name == "dyn"
                else previous
            )
        return DYN

    def _comprehension(self, node: Comprehension, scope: dict[str, Type]) -> Type:
        source = self.check(node.range, scope)
        accu = self.check(node.init, scope)
        item = self._iteration_types(node.range.id, source)[0]
        inner = {**scope, node.accu: accu, node.var: item}
        condition = self.check(node.condition, inner)
        if not self._is_assignable(BOOL, condition):
            self._report_error(node.condition.id, f"expected type 'bool' but found '{self.substitute(condition)}'")
        step = self.check(node.step, inner)
        if not self._is_assignable(accu, step):
            self._report_error(
                node.step.id, f"expected type '{self.substitute(accu)}' but found '{self.substitute(step)}'"
            )
        return self.check(node.result, {**scope, node.accu: accu})

    def _iteration_types(self, ident: int, source: Type) -> tuple[Type, Type]:
        """Types of the iteration variable and of the range's values."""
        found = self._resolve_bound(source)
        if found.name == "list":
            return found.params[0], found.params[0]
        if found.name == "map":
            return found.params[0], found.params[1]
        if found.is_type_param:
            self._is_assignable(found, DYN)
        elif found.name not in ("dyn", "!error!"):
            text = f"expression of type '{self.substitute(found)}' cannot be range of a comprehension"
            return self._report_error(ident, f"{text} (must be list, map, or dynamic)"), ERROR
        return DYN, DYN

    def _two_variables(self, node: Call, scope: dict[str, Type]) -> Type:
        assert node.target is not None
        source = self.check(node.target, scope)
        first, second = self._iteration_types(node.target.id, source)
        if self._resolve_bound(source).name == "list":
            first = INT
        names = _macro_variables(node) or ("", "")
        inner = {**scope, names[0]: first, names[1]: second}
        found = [self.check(part, inner) for part in node.args[2:]]
        for part, kind in zip(node.args[2:], found, strict=True) if len(found) == 2 else ():
            if part is node.args[2] and not self._is_assignable(BOOL, kind):
                self._report_error(part.id, f"expected type 'bool' but found '{self.substitute(kind)}'")
        result = found[-1]
        match node.function:
            case "transformList":
                return list_of(result)
            case "transformMap":
                return map_of(first, result)
            case "transformMapEntry":
                return result
            case _:
                if not self._is_assignable(BOOL, result):
                    self._report_error(
                        node.args[-1].id, f"expected type 'bool' but found '{self.substitute(result)}'"
                    )
                return BOOL


def _qualified_name(node: Node | None) -> str:
    """The qualified name of a chain of selections, or empty."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.is_presence_test and (inner := _qualified_name(node.operand)):
        return f"{inner}.{node.field}"
    return ""


def _macro_variables(node: Call) -> tuple[str, str] | None:
    """The two variables of a macro. None if ``node`` is not such a macro."""
    max_arguments = 4 if node.function.startswith("transform") else 3
    if not 3 <= len(node.args) <= max_arguments:
        return None
    first, second = node.args[:2]
    return (first.name, second.name) if isinstance(first, Ident) and isinstance(second, Ident) else None


def format_errors(problems: Sequence[tuple[int, str]], source: str) -> str:
    """Errors in the format of cel-go, with excerpts of ``source``."""
    return "\n".join(_error_lines(problems, source))


def _error_lines(problems: Sequence[tuple[int, str]], source: str) -> Iterator[str]:
    for position, text in sorted(problems):
        before = source[:position]
        line = before.count("\n") + 1
        column = position - (before.rfind("\n") + 1)
        source_line = source.split("\n")[line - 1]
        yield f"ERROR: <input>:{line}:{column + 1}: {text}\n | {source_line}\n | {'.' * column}^"
