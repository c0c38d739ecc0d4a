"""Types of expressions, found and refused as cel-go does: ``checker/checker.go``, ``checker/types.go``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from steersman_cel.declarations import Overload, functions
from steersman_cel.errors import refused_here
from steersman_cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListOf,
    Literal,
    MapOf,
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

_TYPES = {
    **{name: Type(name) for name in ("bool", "bytes", "double", "duration", "int", "null_type", "string")},
    **{name: Type(name) for name in ("timestamp", "type", "uint")},
    "google.protobuf.Duration": Type("duration"),
    "google.protobuf.Timestamp": Type("timestamp"),
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "optional_type": optional_of(DYN),
}
_NULLABLE = ("timestamp", "duration")
TWO_VARIABLES = ("all", "exists", "exists_one", "existsOne", "transformList", "transformMap", "transformMapEntry")


@dataclass(slots=True)
class Checked:
    """What is known of an expression.

    Attributes:
        type: of its value.
        types: of each of its parts, by id.
        overloads: of each call, by id: those that it may come to when the types are known.
        problems: what is wrong, with the position in the text.
        names: the variables that it uses.
        reserved: the fields whose names are words of CEL, by the id of their selection, as they are called in data.
    """

    type: Type = DYN
    types: dict[int, Type] = field(default_factory=dict[int, Type])
    overloads: dict[int, list[Overload]] = field(default_factory=dict[int, list[Overload]])
    problems: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    names: set[str] = field(default_factory=set[str])
    reserved: dict[int, str] = field(default_factory=dict[int, str])

    def called(self, node: Node) -> Overload | None:
        """The overload of a call, where its types tell it."""
        found = self.overloads.get(node.id, ())
        return found[0] if len(found) == 1 else None


def check(tree: Tree, variables: Mapping[str, Type]) -> Checked:
    """The types in ``tree``, where ``variables`` are declared."""
    checker = _Checker(tree)
    found = checker.of(tree.root, dict(variables))
    result = checker.result
    result.type = checker.bound(found)
    result.types = {ident: checker.bound(t) for ident, t in result.types.items()}
    return result


class _Checker:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._bindings: dict[str, Type] = {}
        self._fresh = 0
        self.result = Checked()

    # Reporting

    def _problem(self, ident: int, text: str, *, offset: int = 0) -> Type:
        self.result.problems.append((self._tree.positions.get(ident, 0) + offset, text))
        return ERROR

    # Parameters

    def bound(self, found: Type) -> Type:
        """``found`` with the parameters that are known by now; those that are not are any type."""
        if found.param:
            return self.bound(self._bindings[found.name]) if found.name in self._bindings else DYN
        if not found.params:
            return found
        return Type(found.name, tuple(map(self.bound, found.params)), tags=found.tags)

    def _seen(self, found: Type) -> Type:
        while found.param and found.name in self._bindings:
            found = self._bindings[found.name]
        return found

    def _instance(self, overload: Overload) -> Overload:
        """``overload`` with parameters of its own."""
        self._fresh += 1
        suffix = f"%{self._fresh}"

        def renamed(found: Type) -> Type:
            if found.param:
                return Type(found.name + suffix, param=True)
            return Type(found.name, tuple(map(renamed, found.params)), found.fields, tags=found.tags)

        return overload._replace(params=tuple(map(renamed, overload.params)), result=renamed(overload.result))

    def _new(self) -> Type:
        self._fresh += 1
        return Type(f"T%{self._fresh}", param=True)

    def _assign(self, wanted: Type, given: Type) -> bool:
        """Whether ``given`` can stand where ``wanted`` is asked for; binds parameters."""
        wanted, given = self._seen(wanted), self._seen(given)
        if wanted.param and wanted == given:
            return True
        for param, other in ((given, wanted), (wanted, given)):
            if param.param:
                if not other.param and self._occurs(param, other):
                    return False
                self._bindings[param.name] = other
                return True
        if "dyn" in (wanted.name, given.name) or "!error!" in (wanted.name, given.name):
            return True
        if given.name == "null_type" and (wanted.fields is not None or wanted.name in _NULLABLE):
            return True
        if wanted.name == "null_type" and (given.fields is not None or given.name in _NULLABLE):
            return True
        if wanted.name == given.name == "type":
            return True
        if wanted.name != given.name or len(wanted.params) != len(given.params):
            return False
        return all(map(self._assign, wanted.params, given.params))

    def _occurs(self, param: Type, found: Type) -> bool:
        found = self._seen(found)
        return found == param or any(self._occurs(param, p) for p in found.params)

    def _assign_all(self, wanted: Sequence[Type], given: Sequence[Type]) -> bool:
        before = dict(self._bindings)
        if len(wanted) == len(given) and all(map(self._assign, wanted, given)):
            return True
        self._bindings = before
        return False

    # Expressions

    def of(self, node: Node, scope: dict[str, Type]) -> Type:
        """The type of ``node``, where the variables of ``scope`` are known."""
        match node:
            case Literal():
                found = Type(node.kind)
            case Ident():
                found = self._ident(node, scope)
            case Select():
                found = self._select(node, scope)
            case Call():
                found = self._call(node, scope)
            case ListOf():
                found = self._list(node, scope)
            case MapOf():
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
        if name in _TYPES:
            return Type("type", (_TYPES[name],))
        return self._problem(node.id, f"undeclared reference to '{name}' (in container '')")

    def _select(self, node: Select, scope: dict[str, Type]) -> Type:
        qualified = _qualified(node)
        if qualified in _TYPES and qualified.split(".")[0] not in scope:
            return Type("type", (_TYPES[qualified],))
        if not node.field.isidentifier():
            return self._problem(node.id, "unsupported syntax: '`'", offset=1)
        operand = self.of(node.operand, scope)
        found = self._field(node.id, operand, node.field, optional=False)
        return BOOL if node.test else found

    def _field(self, ident: int, operand: Type, name: str, *, optional: bool) -> Type:
        found = self._seen(operand)
        wrapped = found.name == "optional_type"
        target = self._seen(found.params[0]) if wrapped else found
        result = DYN
        if target.fields is not None:
            if name not in target.fields and f"__{name}__" in target.fields:
                name = self.result.reserved[ident] = f"__{name}__"
            if name not in target.fields:
                return self._problem(ident, f"undefined field '{name}'")
            result = target.fields[name]
        elif target.name == "map":
            result = target.params[1]
        elif target.param:
            self._assign(target, DYN)
        elif target.name == "!error!":
            return ERROR
        elif target.name != "dyn":
            return self._problem(ident, f"type '{self.bound(target)}' does not support field selection")
        return optional_of(result) if (optional or wrapped) else result

    def _call(self, node: Call, scope: dict[str, Type]) -> Type:
        if node.function == "_?._":
            name = node.args[1]
            operand = self.of(node.args[0], scope)
            return self._field(node.id, operand, name.text if isinstance(name, Literal) else "", optional=True)
        declared = functions()
        qualified = _qualified(node.target) if node.target is not None else ""
        if qualified and qualified.split(".")[0] not in scope and f"{qualified}.{node.function}" in declared:
            name = f"{qualified}.{node.function}"
            return self._resolve(node, declared[name], [self.of(a, scope) for a in node.args], name, member=False)
        if node.target is not None and node.function in TWO_VARIABLES and _variables(node) is not None:
            return self._two_variables(node, scope)
        if node.target is not None and node.function == "sortBy" and len(node.args) == 2:
            return self._sort_by(node, node.target, scope)
        target = [] if node.target is None else [self.of(node.target, scope)]
        if node.function not in declared:
            for argument in node.args:
                self.of(argument, scope)
            return self._problem(node.id, f"undeclared reference to '{node.function}' (in container '')")
        arguments = [self.of(a, scope) for a in node.args]
        if node.function in ("_&&_", "_||_"):
            return self._logical(node, arguments)
        result = self._resolve(
            node, declared[node.function], [*target, *arguments], node.function, member=bool(target)
        )
        # A list without an order stays one when something is added.
        tags = self._seen(arguments[0]).tags if node.function == "_+_" else ""
        return Type(result.name, result.params, tags=tags) if tags else result

    def _logical(self, node: Call, given: list[Type]) -> Type:
        for part, found in zip(node.args, given, strict=True):
            if not self._assign(BOOL, found):
                self._problem(part.id, f"expected type 'bool' but found '{self.bound(found)}'")
        return BOOL

    def _sort_by(self, node: Call, target: Node, scope: dict[str, Type]) -> Type:
        source = self.of(target, scope)
        variable, key = node.args
        if not isinstance(variable, Ident):
            return self._problem(variable.id, "argument is not an identifier")
        found = self.of(key, {**scope, variable.name: self._items(target.id, source)[0]})
        self.result.types[variable.id] = DYN
        name = "@sortByAssociatedKeys"
        return self._resolve(node, functions()[name], [source, list_of(found)], name, member=True)

    def _resolve(self, node: Call, overloads: list[Overload], given: list[Type], name: str, *, member: bool) -> Type:
        result: Type | None = None
        for overload in overloads:
            if overload.member != member:
                continue
            form = self._instance(overload)
            if not self._assign_all(form.params, given):
                continue
            self.result.overloads.setdefault(node.id, []).append(overload)
            if result is None:
                result = form.result
            elif self.bound(result) != self.bound(form.result):
                result = DYN
        if result is not None:
            return result
        shown = [str(self.bound(t)) if not self._seen(t).param else "dyn" for t in given]
        told = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
        return self._problem(node.id, f"found no matching overload for '{name}' applied to '{told}'")

    def _list(self, node: ListOf, scope: dict[str, Type]) -> Type:
        item: Type | None = None
        optional = set(node.optional)
        for position, part in enumerate(node.items):
            found = self.of(part, scope)
            if position in optional and self._seen(found).name == "optional_type":
                found = self._seen(found).params[0]
            item = self._joined(item, found)
        return list_of(item or self._new())

    def _map(self, node: MapOf, scope: dict[str, Type]) -> Type:
        if node.name.startswith("google.protobuf."):
            raise refused_here(f"the message {node.name} in CEL")
        if node.name:
            # It stands at the bracket.
            text = f"undeclared reference to '{node.name}' (in container '')"
            return self._problem(node.id, text, offset=len(node.name))
        key: Type | None = None
        value: Type | None = None
        for entry in node.entries:
            key = self._joined(key, self.of(entry.key, scope))
            found = self.of(entry.value, scope)
            if entry.optional and self._seen(found).name == "optional_type":
                found = self._seen(found).params[0]
            value = self._joined(value, found)
        return map_of(key or self._new(), value or self._new())

    def _joined(self, former: Type | None, found: Type) -> Type:
        if former is None:
            return found
        if self._assign_all([former], [found]):
            return found if self._seen(former).name == "null_type" or self._seen(found).name == "dyn" else former
        return DYN

    def _comprehension(self, node: Comprehension, scope: dict[str, Type]) -> Type:
        source = self.of(node.range, scope)
        accu = self.of(node.init, scope)
        item = self._items(node.range.id, source)[0]
        inner = {**scope, node.accu: accu, node.var: item}
        condition = self.of(node.condition, inner)
        if not self._assign(BOOL, condition):
            self._problem(node.condition.id, f"expected type 'bool' but found '{self.bound(condition)}'")
        step = self.of(node.step, inner)
        if not self._assign(accu, step):
            self._problem(node.step.id, f"expected type '{self.bound(accu)}' but found '{self.bound(step)}'")
        return self.of(node.result, {**scope, node.accu: accu})

    def _items(self, ident: int, source: Type) -> tuple[Type, Type]:
        """What a macro with one variable goes over, and the values that belong to them."""
        found = self._seen(source)
        if found.name == "list":
            return found.params[0], found.params[0]
        if found.name == "map":
            return found.params[0], found.params[1]
        if found.param:
            self._assign(found, DYN)
        elif found.name not in ("dyn", "!error!"):
            text = f"expression of type '{self.bound(found)}' cannot be range of a comprehension"
            return self._problem(ident, f"{text} (must be list, map, or dynamic)"), ERROR
        return DYN, DYN

    def _two_variables(self, node: Call, scope: dict[str, Type]) -> Type:
        assert node.target is not None
        source = self.of(node.target, scope)
        first, second = self._items(node.target.id, source)
        if self._seen(source).name == "list":
            first = INT
        names = _variables(node) or ("", "")
        inner = {**scope, names[0]: first, names[1]: second}
        found = [self.of(part, inner) for part in node.args[2:]]
        for part, kind in zip(node.args[2:], found, strict=True) if len(found) == 2 else ():
            if part is node.args[2] and not self._assign(BOOL, kind):
                self._problem(part.id, f"expected type 'bool' but found '{self.bound(kind)}'")
        result = found[-1]
        match node.function:
            case "transformList":
                return list_of(result)
            case "transformMap":
                return map_of(first, result)
            case "transformMapEntry":
                return result
            case _:
                if not self._assign(BOOL, result):
                    self._problem(node.args[-1].id, f"expected type 'bool' but found '{self.bound(result)}'")
                return BOOL


def _qualified(node: Node | None) -> str:
    """The name that a chain of fields may be; empty where it is none."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test and (inner := _qualified(node.operand)):
        return f"{inner}.{node.field}"
    return ""


def _variables(node: Call) -> tuple[str, str] | None:
    """The two variables of a macro, or None where ``node`` is none."""
    most = 4 if node.function.startswith("transform") else 3
    if not 3 <= len(node.args) <= most:
        return None
    first, second = node.args[:2]
    return (first.name, second.name) if isinstance(first, Ident) and isinstance(second, Ident) else None


def report(problems: Sequence[tuple[int, str]], source: str) -> str:
    """The problems as cel-go shows them, by their places in ``source``."""
    return "\n".join(_shown(problems, source))


def _shown(problems: Sequence[tuple[int, str]], source: str) -> Iterator[str]:
    for position, text in sorted(problems):
        before = source[:position]
        line = before.count("\n") + 1
        column = position - (before.rfind("\n") + 1)
        shown = source.split("\n")[line - 1]
        yield f"ERROR: <input>:{line}:{column + 1}: {text}\n | {shown}\n | {'.' * column}^"
