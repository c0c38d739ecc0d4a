"""Finds what handlers write: fields of the status, and return values."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_JSON_TYPES: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def status_fields(function: FunctionNode) -> dict[str, str]:
    """Return the JSON types of status fields by name. The type is "" if unknown.

    These are ``patch.status["x"] = ...``, ``status["x"]`` and ``status.get("x")``.
    """
    found: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if name := _field_name(target):
                    found[name] = found.get(name) or _json_type(node.value)
        elif isinstance(node, ast.Subscript | ast.Call) and (name := _field_name(node)):
            found.setdefault(name, "")
    return dict(sorted(found.items()))


def returns_value(function: FunctionNode) -> bool:
    """Return True if the function itself returns something else than None."""
    return any(
        isinstance(node, ast.Return)
        and node.value is not None
        and not (isinstance(node.value, ast.Constant) and node.value.value is None)
        for node in _own_nodes(function)
    )


def _own_nodes(function: FunctionNode) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of nested functions."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _field_name(node: ast.expr) -> str:
    """Return ``x`` of ``status["x"]`` and ``status.get("x")``, or ""."""
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript) and _is_status(node.value):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_status(node.func.value):
        key = node.args[0] if node.func.attr in ("get", "setdefault", "pop") and node.args else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _is_status(node: ast.expr) -> bool:
    """Return True for ``status``, ``patch.status``, ``body.status`` and ``body["status"]``."""
    if isinstance(node, ast.Subscript):
        return _is_own_object(node.value) and isinstance(node.slice, ast.Constant) and node.slice.value == "status"
    if isinstance(node, ast.Attribute):
        return _is_own_object(node.value) and node.attr == "status"
    return isinstance(node, ast.Name) and node.id == "status"


def _is_own_object(node: ast.expr) -> bool:
    """Return True for the keyword arguments that stand for the handled object."""
    return isinstance(node, ast.Name) and node.id in ("patch", "body")


def _json_type(value: ast.expr) -> str:
    if isinstance(value, ast.JoinedStr):
        return "string"
    return _JSON_TYPES.get(type(value.value), "") if isinstance(value, ast.Constant) else ""
