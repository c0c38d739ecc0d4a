"""Estimates of the maximum cost of expressions.

The unit is that of cel-go: reading a variable or a field costs 1. Source: ``checker/cost.go`` of
cel-go 0.26, with the sizes by ``pkg/apiserver/schema/cel/compilation.go`` of ``k8s.io/apiextensions-apiserver`` 1.36.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from steersman_cel.call_costs import (
    MAX_COST,
    UNKNOWN_SIZE,
    ArgumentEstimate,
    CallEstimate,
    SizeEstimate,
    add,
    estimate_call,
    multiply,
)
from steersman_cel.checker import CheckedExpr
from steersman_cel.declarations import Overload
from steersman_cel.macro_expansion import MacroExpander
from steersman_cel.syntax_tree import (
    Call,
    Comprehension,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Node,
    Select,
    literal_size,
)
from steersman_cel.types import MAX_REQUEST_BYTES, Type

RULE_COST_LIMIT = 10_000_000
"""Maximum cost of one rule for all values of a schema."""
CRD_COST_LIMIT = 100_000_000
"""Maximum cost of all rules of a schema."""

_LIST_CREATE_COST, _MAP_CREATE_COST = 10, 30
_SCALARS = ("bool", "double", "duration", "int", "timestamp", "uint")
_STRUCTS = ("map", "kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat")
_COST_ADVICE = (
    "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared"
)


def estimate_cost(root: Node, checked: CheckedExpr, self_type: Type) -> int:
    """The maximum cost of the expression ``root`` on values of ``self_type``."""
    coster = _CostEstimator(replace(checked, types=dict(checked.types), overloads=dict(checked.overloads)), self_type)
    return coster.estimate(root)


def total_cost(cost: int, cardinality: int | None, self_type: Type) -> int:
    """The cost of an expression for all values of a schema.

    Args:
        cost: cost for one value.
        cardinality: maximum number of values. None if a list or map around them is unbounded: as many as fit into a
            request.
        self_type: type of the values.
    """
    return multiply(
        cost, MAX_REQUEST_BYTES // (self_type.min_serialized_size + 1) if cardinality is None else cardinality
    )


def budget_error(subject: str, cost: int, limit: int) -> str:
    """The API server's error for a cost above ``limit``."""
    factor = cost / limit
    excess = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{subject} exceeds budget by factor of {excess} ({_COST_ADVICE})"


class _Path:
    """The path from a variable to a value.

    Imitates slices in Go: a longer path shares the array of its prefix if there is capacity, and overwrites what
    another path with that prefix wrote. The API server reads sizes from the overwritten path.
    """

    __slots__ = ("_cells", "_length")

    def __init__(self, cells: list[str], count: int) -> None:
        self._cells = cells
        self._length = count

    def child(self, name: str) -> _Path:
        """The path with one more step."""
        if self._length == len(self._cells):
            padding = max(1, 2 * self._length) - self._length - 1
            return _Path([*self._cells, name, *[""] * padding], self._length + 1)
        self._cells[self._length] = name
        return _Path(self._cells, self._length + 1)

    def names(self) -> list[str]:
        return self._cells[: self._length]


_NO_PATH = _Path([], 0)


class _EntrySizes(NamedTuple):
    """Sizes of the keys and values of a list or map."""

    kind: str
    key: SizeEstimate
    value: SizeEstimate


class _LocalVariable(NamedTuple):
    """A variable of a macro."""

    path: _Path
    size: SizeEstimate | None
    entries: _EntrySizes | None


class _CostEstimator:
    def __init__(self, checked: CheckedExpr, self_type: Type) -> None:
        self._checked = checked
        self._self = self_type
        self._expansion = MacroExpander(checked)
        self._paths: dict[int, _Path] = {}
        self._sizes: dict[int, SizeEstimate] = {}
        self._entries: dict[int, _EntrySizes] = {}
        self._scopes: dict[str, list[_LocalVariable]] = {}

    def estimate(self, node: Node) -> int:
        """The maximum cost of ``node``."""
        match node:
            case Literal():
                return 0
            case Ident():
                return self._ident(node.id, node.name.removeprefix("."))
            case Select():
                return self._select(node)
            case Call():
                macro = self._expansion.expand(node)
                return self._call(node) if macro is None else self.estimate(macro)
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case Comprehension():
                return self._bind(node) if _is_bind(node) else self._comprehension(node)

    # Paths and sizes of values

    def _type(self, node: Node) -> Type:
        return self._checked.types[node.id]

    def _local(self, name: str) -> _LocalVariable | None:
        found = self._scopes.get(name)
        return found[-1] if found else None

    def _path(self, node: Node) -> _Path:
        if isinstance(node, Ident) and (local := self._local(node.name)) is not None:
            return local.path
        return self._paths.get(node.id, _NO_PATH)

    def _declared_size(self, path: list[str]) -> SizeEstimate | None:
        """The size that the schema declares for ``path``."""
        if not path:
            return None
        current = self._self
        for name in path[1:]:
            found = _element_type(current, name)
            if found is None:
                return None
            current = found
        return SizeEstimate(0, current.max_elements)

    def _size(self, node: Node) -> SizeEstimate | None:
        if (known := self._sizes.get(node.id)) is not None:
            return known
        match node:
            case Literal():
                return SizeEstimate(literal_size(node), literal_size(node))
            case ListExpr():
                return SizeEstimate(len(node.items), len(node.items))
            case MapExpr():
                return SizeEstimate(len(node.entries), len(node.entries))
            case _:
                pass
        if (declared := self._declared_size(self._path(node).names())) is not None:
            self._sizes[node.id] = declared
            return declared
        if _is_scalar(self._type(node)):
            return SizeEstimate(1, 1)
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.size if local is not None else None

    def _size_or_unknown(self, node: Node) -> SizeEstimate:
        return self._size(node) or UNKNOWN_SIZE

    def _entries_of(self, node: Node) -> _EntrySizes | None:
        if (known := self._entries.get(node.id)) is not None:
            return known
        local = self._local(node.name) if isinstance(node, Ident) else None
        return local.entries if local is not None else None

    def _argument(self, node: Node) -> ArgumentEstimate:
        kind, size, item = self._type(node), self._size(node), None
        if kind.params:
            path = self._path(node).names()
            item = self._declared_size([*path, "@items"]) if path else None
            item = item or UNKNOWN_SIZE
        return ArgumentEstimate(node, kind, size or UNKNOWN_SIZE, size is not None, item)

    # Expressions

    def _ident(self, ident: int, name: str) -> int:
        local = self._local(name)
        self._paths[ident] = local.path if local is not None else _Path([name], 1)
        return 1

    def _select(self, node: Select) -> int:
        if node.operand.id not in self._checked.types:
            # A qualified type name.
            return self._ident(node.id, node.field)
        cost = self.estimate(node.operand)
        if node.is_presence_test:
            return cost
        kind = self._type(node.operand)
        self._paths[node.id] = self._path(node.operand).child(node.field)
        return cost + (kind.fields is not None or kind.name in _STRUCTS)

    def _list(self, node: ListExpr) -> int:
        cost = _LIST_CREATE_COST + sum(map(self.estimate, node.items))
        self._entries[node.id] = _EntrySizes("list", SizeEstimate(1, 1), self._union_of_sizes(node.items))
        return min(cost, MAX_COST)

    def _map(self, node: MapExpr) -> int:
        cost = _MAP_CREATE_COST
        for entry in node.entries:
            cost += self.estimate(entry.key) + self.estimate(entry.value)
        keys, values = [e.key for e in node.entries], [e.value for e in node.entries]
        self._entries[node.id] = _EntrySizes("map", self._union_of_sizes(keys), self._union_of_sizes(values))
        return min(cost, MAX_COST)

    def _union_of_sizes(self, nodes: list[Node]) -> SizeEstimate:
        size = SizeEstimate(MAX_COST if nodes else 0, 0)
        for node in nodes:
            size = size.union(self._size_or_unknown(node))
        return size

    # Calls

    def _call(self, node: Call) -> int:
        if node.function == "dyn":
            cost = add(1, self.estimate(node.args[0]))
            self._copy_sizes(node, node.args[0])
            return cost
        if node.function == "_?._":
            return add(1, self.estimate(node.args[0]))
        costs: list[int] = []
        arguments: list[ArgumentEstimate] = []
        for part in node.args:
            costs.append(self.estimate(part))
            arguments.append(self._argument(part))
        if node.function in ("_&&_", "_||_"):
            return add(*costs)
        if node.function == "_?_:_":
            return self._conditional(node, costs)
        total = min(sum(costs), MAX_COST)
        overloads = self._checked.overloads.get(node.id, [])
        target = None
        if node.target is not None and any(o.member for o in overloads):
            total = add(total, self.estimate(node.target))
            target = self._argument(node.target)
        estimates = self._estimates(node, overloads, target, arguments)
        return add(total, max((e.cost for e in estimates), default=0))

    def _conditional(self, node: Call, costs: list[int]) -> int:
        _, yes, no = node.args
        yes_entries, no_entries = self._entries_of(yes), self._entries_of(no)
        if yes_entries is not None and no_entries is not None:
            self._entries[node.id] = _EntrySizes(
                yes_entries.kind, yes_entries.key.union(no_entries.key), yes_entries.value.union(no_entries.value)
            )
        self._sizes[node.id] = self._size_or_unknown(yes).union(self._size_or_unknown(no))
        return add(costs[0], max(costs[1:]))

    def _estimates(
        self,
        node: Call,
        overloads: list[Overload],
        target: ArgumentEstimate | None,
        arguments: list[ArgumentEstimate],
    ) -> list[CallEstimate]:
        found: list[CallEstimate] = []
        size: SizeEstimate | None = None
        for overload in overloads:
            estimate = estimate_call(overload, target, arguments)
            found.append(estimate)
            if estimate.size is not None:
                size = estimate.size if size is None else size.union(estimate.size)
            if overload.name == "_[_]" and overload.params[0].name in ("list", "map"):
                held = self._entries_of(node.args[0])
                size = held.value if held is not None else None
                step = "@items" if overload.params[0].name == "list" else "@values"
                self._paths[node.id] = self._path(node.args[0]).child(step)
            if overload.name == "_+_" and overload.params[0].name in ("string", "bytes", "list"):
                self._union_entries(node)
            if size is None:
                size = self._size(node)
        if size is not None:
            self._sizes[node.id] = size
        return found

    def _union_entries(self, node: Call) -> None:
        left_entries, right_entries = (self._entries_of(a) for a in node.args)
        if left_entries is not None and right_entries is not None:
            self._entries[node.id] = _EntrySizes(
                left_entries.kind,
                left_entries.key.union(right_entries.key),
                left_entries.value.union(right_entries.value),
            )

    def _copy_sizes(self, node: Node, other: Node) -> None:
        if (size := self._size(other)) is not None:
            self._sizes[node.id] = size
        if (held := self._entries_of(other)) is not None:
            self._entries[node.id] = held

    # Macros

    def _bind(self, node: Comprehension) -> int:
        cost = add(self.estimate(node.range), self.estimate(node.init))
        self._push(
            node.accu, _LocalVariable(self._path(node.init), self._size(node.init), self._entries_of(node.init))
        )
        cost = add(cost, self.estimate(node.result))
        self._scopes[node.accu].pop()
        self._copy_sizes(node, node.result)
        return cost

    def _comprehension(self, node: Comprehension) -> int:
        cost = add(self.estimate(node.range), self.estimate(node.init))
        self._push(
            node.accu, _LocalVariable(self._path(node.init), self._size(node.init), self._entries_of(node.init))
        )
        self._push_items(node)
        step = add(self.estimate(node.condition), self.estimate(node.step))
        for name in (node.var, node.var2):
            if name:
                self._scopes[name].pop()
        cost = add(cost, self.estimate(node.result))
        self._scopes[node.accu].pop()
        range_size = self._size_or_unknown(node.range)
        cost = add(cost, multiply(range_size.most, step))
        if isinstance(node.init, Literal):
            self._sizes[node.id] = self._size_or_unknown(node.init)
        elif isinstance(node.init, ListExpr | MapExpr):
            self._sizes[node.id] = range_size
            if (held := self._entries_of(node.step)) is not None:
                self._entries[node.id] = held
        return cost

    def _push(self, name: str, local: _LocalVariable) -> None:
        self._scopes.setdefault(name, []).append(local)

    def _push_items(self, node: Comprehension) -> None:
        held, path = self._entries_of(node.range), self._path(node.range)
        is_list = (held.kind if held is not None else self._type(node.range).name) == "list"
        key, value = (held.key, held.value) if held is not None else (None, None)
        if node.var2:
            self._push(node.var, _LocalVariable(path.child("@indices" if is_list else "@keys"), key, None))
            self._push(node.var2, _LocalVariable(path.child("@items" if is_list else "@values"), value, None))
        elif is_list:
            self._push(node.var, _LocalVariable(path.child("@items"), value, None))
        else:
            self._push(node.var, _LocalVariable(path.child("@keys"), key, None))


def _element_type(container: Type, name: str) -> Type | None:
    match name:
        case "@items" | "@values":
            return container.params[-1] if container.params else None
        case "@keys":
            return container.params[0] if container.name == "map" else None
        case _:
            return container.fields.get(name) if container.fields is not None else None


def _is_scalar(kind: Type) -> bool:
    if kind.name == "optional_type":
        return _is_scalar(kind.params[0])
    return kind.name in _SCALARS


def _is_bind(node: Comprehension) -> bool:
    never_iterates = (
        isinstance(node.condition, Literal) and node.condition.kind == "bool" and node.condition.wire[-1:] != b"\1"
    )
    return never_iterates and isinstance(node.range, ListExpr) and not node.range.items
