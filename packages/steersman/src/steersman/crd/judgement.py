"""Values held to the CEL rules of their schemas, without a server.

The engine is the extra ``cel``; where it is not installed, and where it lacks a function, rules are left to the API
server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from steersman.crd.expressions import is_installed
from steersman.crd.rules import RULES, Schema
from steersman.errors import ApiError

if TYPE_CHECKING:
    from steersman_cel.evaluation import Broken


def has_rules(schema: Any) -> bool:
    """Whether ``schema`` has rules at any depth."""
    if isinstance(schema, list):
        return any(map(has_rules, cast("list[Any]", schema)))
    if not isinstance(schema, dict):
        return False
    return RULES in schema or any(map(has_rules, cast("Schema", schema).values()))


def rule_violations(schema: Schema, value: Any, former: Any, *, root: bool) -> tuple[str, ...]:
    """The rules that ``value`` breaks, each with its path: ``.spec.size: a size never shrinks``.

    Args:
        schema: of the value, with rules.
        value: in wire form, otherwise valid, with its defaults.
        former: what it replaces; None where it is new.
        root: whether it is a whole object.
    """
    if not is_installed():
        return ()
    from steersman_cel.evaluation import broken_rules
    from steersman_cel.values import MISSING

    return _told(broken_rules(value, MISSING if former is None else former, schema, root=root))


def default_violations(schema: Schema, default: Any) -> tuple[str, ...]:
    """The rules of ``schema`` that its default breaks."""
    if not has_rules(schema) or not is_installed():
        return ()
    from steersman_cel.evaluation import broken_by_default

    try:
        return _told(iter(broken_by_default(default, schema)))
    except ApiError as error:
        return _left_to_the_server(error)


def _told(broken: Iterator[Broken]) -> tuple[str, ...]:
    found: list[str] = []
    try:
        found += map(_text, broken)
    except ApiError as error:
        found += _left_to_the_server(error)
    return tuple(found)


def _left_to_the_server(error: ApiError) -> tuple[str, ...]:
    if error.code != 501:
        raise error
    return ()


def _text(broken: Broken) -> str:
    path = broken.path if not broken.path or broken.path.startswith("[") else f".{broken.path}"
    path += broken.rule.get("fieldPath", "")
    text = broken.message
    if broken.error:
        text = f"the rule {broken.rule['rule']!r} cannot be evaluated: {broken.error}"
    return f"{path or 'the value'}: {text}"
