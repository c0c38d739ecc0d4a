"""What expressions cost at most, estimated as the API server does before it takes a definition.

Costs are counted in the units of cel-go: looking at a variable or a field is one. Source: ``checker/cost.go`` of
cel-go 0.26, with the sizes by ``pkg/apiserver/schema/cel/compilation.go`` of ``k8s.io/apiextensions-apiserver`` 1.36.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from steersman_cel.callcosts import MOST, UNKNOWN, Argument, Estimate, Size, add, call_estimate, multiply
from steersman_cel.checker import Checked
from steersman_cel.declarations import Overload
from steersman_cel.expansion import Expansion
from steersman_cel.syntax import Call, Comprehension, Ident, ListOf, Literal, MapOf, Node, Select, length
from steersman_cel.types import REQUEST, Type

EXPRESSION_LIMIT = 10_000_000
"""What one rule of a definition may cost, with all the values that it is evaluated on."""
DEFINITION_LIMIT = 100_000_000
"""What all rules of a schema may cost together."""

_MAKE_LIST, _MAKE_MAP = 10, 30
_SCALARS = ("bool", "double", "duration", "int", "timestamp", "uint")
_STRUCTS = ("map", "kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat")
_ADVICE = (
    "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared"
)


def estimated_cost(root: Node, checked: Checked, self_type: Type) -> int:
    """What the expression ``root`` costs at most, where ``self`` is of ``self_type``."""
    coster = _Coster(replace(checked, types=dict(checked.types), overloads=dict(checked.overloads)), self_type)
    return coster.of(root)


def repeated_cost(cost: int, times: int | None, self_type: Type) -> int:
    """What an expression costs for all values that it is evaluated on.

    Args:
        times: how many these are at most; None where no list or map around tells.
        self_type: their type: so many as fit into a request.
    """
    return multiply(cost, REQUEST // (self_type.least + 1) if times is None else times)


def over_budget(what: str, cost: int, limit: int) -> str:
    """How the API server refuses ``what`` because of its cost."""
    factor = cost / limit
    told = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {told} ({_ADVICE})"


class _Path:
    """How a value is reached from a variable.

    It grows as slices of Go do: a longer path is written into the same array as its beginning, if there is room,
    over what another path from there has written. The real server takes sizes from what it then finds.
    """

    __slots__ = ("_cells", "_length")

    def __init__(self, cells: list[str], count: int) -> None:
        self._cells = cells
        self._length = count

    def to(self, name: str) -> _Path:
        """The path one step further."""
        if self._length == len(self._cells):
            room = max(1, 2 * self._length) - self._length - 1
            return _Path([*self._cells, name, *[""] * room], self._length + 1)
        self._cells[self._length] = name
        return _Path(self._cells, self._length + 1)

    def names(self) -> list[str]:
        return self._cells[: self._length]


_NOWHERE = _Path([], 0)


class _Entries(NamedTuple):
    """The sizes of what a list or a map holds."""

    kind: str
    key: Size
    value: Size


class _Local(NamedTuple):
    """A variable of a macro."""

    path: _Path
    size: Size | None
    entries: _Entries | None


class _Coster:
    def __init__(self, checked: Checked, self_type: Type) -> None:
        self._checked = checked
        self._self = self_type
        self._expansion = Expansion(checked)
        self._paths: dict[int, _Path] = {}
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, _Entries] = {}
        self._scopes: dict[str, list[_Local]] = {}

    def of(self, node: Node) -> int:
        """What ``node`` costs at most."""
        match node:
            case Literal():
                return 0
            case Ident():
                return self._ident(node.id, node.name.removeprefix("."))
            case Select():
                return self._select(node)
            case Call():
                macro = self._expansion.of(node)
                return self._call(node) if macro is None else self.of(macro)
            case ListOf():
                return self._list(node)
            case MapOf():
                return self._map(node)
            case Comprehension():
                return self._bind(node) if _is_bind(node) else self._comprehension(node)

    # Where values come from, and how large they are

    def _type(self, node: Node) -> Type:
        return self._checked.types[node.id]

    def _local(self, name: str) -> _Local | None:
        found = self._scopes.get(name)
        return found[-1] if found else None

    def _path(self, node: Node) -> _Path:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(node.id, _NOWHERE)

    def _declared(self, path: list[str]) -> Size | None:
        """The size that the schema tells of what is found at ``path``."""
        if not path:
            return None
        at = self._self
        for name in path[1:]:
            found = _within(at, name)
            if found is None:
                return None
            at = found
        return Size(0, at.most)

    def _size(self, node: Node) -> Size | None:
        if (known := self._sizes.get(node.id)) is not None:
            return known
        match node:
            case Literal():
                return Size(length(node), length(node))
            case ListOf():
                return Size(len(node.items), len(node.items))
            case MapOf():
                return Size(len(node.entries), len(node.entries))
            case _:
                pass
        if (declared := self._declared(self._path(node).names())) is not None:
            self._sizes[node.id] = declared
            return declared
        if _is_scalar(self._type(node)):
            return Size(1, 1)
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.size if local is not None else None

    def _sized(self, node: Node) -> Size:
        return self._size(node) or UNKNOWN

    def _held(self, node: Node) -> _Entries | None:
        if (known := self._entries.get(node.id)) is not None:
            return known
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.entries if local is not None else None

    def _argument(self, node: Node) -> Argument:
        kind, size, item = self._type(node), self._size(node), None
        if kind.params:
            path = self._path(node).names()
            item = self._declared([*path, "@items"]) if path else None
            item = item or UNKNOWN
        return Argument(node, kind, size or UNKNOWN, size is not None, item)

    # Expressions

    def _ident(self, ident: int, name: str) -> int:
        local = self._local(name)
        self._paths[ident] = local.path if local is not None else _Path([name], 1)
        return 1

    def _select(self, node: Select) -> int:
        if node.operand.id not in self._checked.types:
            # The name of a type, which has dots.
            return self._ident(node.id, node.field)
        cost = self.of(node.operand)
        if node.test:
            return cost
        kind = self._type(node.operand)
        self._paths[node.id] = self._path(node.operand).to(node.field)
        return cost + (kind.fields is not None or kind.name in _STRUCTS)

    def _list(self, node: ListOf) -> int:
        cost = _MAKE_LIST + sum(map(self.of, node.items))
        self._entries[node.id] = _Entries("list", Size(1, 1), self._joined(node.items))
        return min(cost, MOST)

    def _map(self, node: MapOf) -> int:
        cost = _MAKE_MAP
        for entry in node.entries:
            cost += self.of(entry.key) + self.of(entry.value)
        keys, values = [e.key for e in node.entries], [e.value for e in node.entries]
        self._entries[node.id] = _Entries("map", self._joined(keys), self._joined(values))
        return min(cost, MOST)

    def _joined(self, nodes: list[Node]) -> Size:
        size = Size(MOST if nodes else 0, 0)
        for node in nodes:
            size = size.union(self._sized(node))
        return size

    # Calls

    def _call(self, node: Call) -> int:
        if node.function == "dyn":
            cost = add(1, self.of(node.args[0]))
            self._copy_sizes(node, node.args[0])
            return cost
        if node.function == "_?._":
            return add(1, self.of(node.args[0]))
        costs: list[int] = []
        arguments: list[Argument] = []
        for part in node.args:
            costs.append(self.of(part))
            arguments.append(self._argument(part))
        if node.function in ("_&&_", "_||_"):
            return add(*costs)
        if node.function == "_?_:_":
            return self._either(node, costs)
        total = min(sum(costs), MOST)
        overloads = self._checked.overloads.get(node.id, [])
        target = None
        if node.target is not None and any(o.member for o in overloads):
            total = add(total, self.of(node.target))
            target = self._argument(node.target)
        estimates = self._estimates(node, overloads, target, arguments)
        return add(total, max((e.cost for e in estimates), default=0))

    def _either(self, node: Call, costs: list[int]) -> int:
        _, yes, no = node.args
        one, two = self._held(yes), self._held(no)
        if one is not None and two is not None:
            self._entries[node.id] = _Entries(one.kind, one.key.union(two.key), one.value.union(two.value))
        self._sizes[node.id] = self._sized(yes).union(self._sized(no))
        return add(costs[0], max(costs[1:]))

    def _estimates(
        self, node: Call, overloads: list[Overload], target: Argument | None, arguments: list[Argument]
    ) -> list[Estimate]:
        found: list[Estimate] = []
        size: Size | None = None
        for overload in overloads:
            estimate = call_estimate(overload, target, arguments)
            found.append(estimate)
            if estimate.size is not None:
                size = estimate.size if size is None else size.union(estimate.size)
            if overload.name == "_[_]" and overload.params[0].name in ("list", "map"):
                held = self._held(node.args[0])
                size = held.value if held is not None else None
                step = "@items" if overload.params[0].name == "list" else "@values"
                self._paths[node.id] = self._path(node.args[0]).to(step)
            if overload.name == "_+_" and overload.params[0].name in ("string", "bytes", "list"):
                self._joined_entries(node)
            if size is None:
                size = self._size(node)
        if size is not None:
            self._sizes[node.id] = size
        return found

    def _joined_entries(self, node: Call) -> None:
        one, two = (self._held(a) for a in node.args)
        if one is not None and two is not None:
            self._entries[node.id] = _Entries(one.kind, one.key.union(two.key), one.value.union(two.value))

    def _copy_sizes(self, node: Node, other: Node) -> None:
        if (size := self._size(other)) is not None:
            self._sizes[node.id] = size
        if (held := self._held(other)) is not None:
            self._entries[node.id] = held

    # Macros

    def _bind(self, node: Comprehension) -> int:
        cost = add(self.of(node.range), self.of(node.init))
        self._push(node.accu, _Local(self._path(node.init), self._size(node.init), self._held(node.init)))
        cost = add(cost, self.of(node.result))
        self._scopes[node.accu].pop()
        self._copy_sizes(node, node.result)
        return cost

    def _comprehension(self, node: Comprehension) -> int:
        cost = add(self.of(node.range), self.of(node.init))
        self._push(node.accu, _Local(self._path(node.init), self._size(node.init), self._held(node.init)))
        self._push_items(node)
        step = add(self.of(node.condition), self.of(node.step))
        for name in (node.var, node.var2):
            if name:
                self._scopes[name].pop()
        cost = add(cost, self.of(node.result))
        self._scopes[node.accu].pop()
        over = self._sized(node.range)
        cost = add(cost, multiply(over.most, step))
        if isinstance(node.init, Literal):
            self._sizes[node.id] = self._sized(node.init)
        elif isinstance(node.init, ListOf | MapOf):
            self._sizes[node.id] = over
            if (held := self._held(node.step)) is not None:
                self._entries[node.id] = held
        return cost

    def _push(self, name: str, local: _Local) -> None:
        self._scopes.setdefault(name, []).append(local)

    def _push_items(self, node: Comprehension) -> None:
        held, path = self._held(node.range), self._path(node.range)
        is_list = (held.kind if held is not None else self._type(node.range).name) == "list"
        key, value = (held.key, held.value) if held is not None else (None, None)
        if node.var2:
            self._push(node.var, _Local(path.to("@indices" if is_list else "@keys"), key, None))
            self._push(node.var2, _Local(path.to("@items" if is_list else "@values"), value, None))
        elif is_list:
            self._push(node.var, _Local(path.to("@items"), value, None))
        else:
            self._push(node.var, _Local(path.to("@keys"), key, None))


def _within(at: Type, name: str) -> Type | None:
    match name:
        case "@items" | "@values":
            return at.params[-1] if at.params else None
        case "@keys":
            return at.params[0] if at.name == "map" else None
        case _:
            return at.fields.get(name) if at.fields is not None else None


def _is_scalar(kind: Type) -> bool:
    if kind.name == "optional_type":
        return _is_scalar(kind.params[0])
    return kind.name in _SCALARS


def _is_bind(node: Comprehension) -> bool:
    never = (
        isinstance(node.condition, Literal) and node.condition.kind == "bool" and node.condition.wire[-1:] != b"\1"
    )
    return never and isinstance(node.range, ListOf) and not node.range.items
