"""Values held to the CEL rules of their schemas, without a server.

The engine is the extra ``cel``; where it is not installed, and where it lacks a function, rules are left to the API
server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from steersman.crd.expressions import is_cel_available
from steersman.crd.rules import RULES, Schema
from steersman.errors import ApiError

if TYPE_CHECKING:
    from steersman_cel.validation import RuleViolation


def has_rules(schema: Any) -> bool:
    """Whether ``schema`` has rules at any depth."""
    if isinstance(schema, list):
        return any(map(has_rules, cast("list[Any]", schema)))
    if not isinstance(schema, dict):
        return False
    return RULES in schema or any(map(has_rules, cast("Schema", schema).values()))


def rule_violations(schema: Schema, value: Any, old_value: Any, *, root: bool) -> tuple[str, ...]:
    """The rules that ``value`` breaks, each with its path: ``.spec.size: a size never shrinks``.

    Args:
        schema: of the value, with rules.
        value: in wire form, otherwise valid, with its defaults.
        former: what it replaces; None where it is new.
        root: whether it is a whole object.
    """
    if not is_cel_available():
        return ()
    from steersman_cel.validation import find_violations
    from steersman_cel.values import MISSING

    return _collect(find_violations(value, MISSING if old_value is None else old_value, schema, root=root))


def default_violations(schema: Schema, default: Any) -> tuple[str, ...]:
    """The rules of ``schema`` that its default breaks."""
    if not has_rules(schema) or not is_cel_available():
        return ()
    from steersman_cel.validation import find_default_violations

    try:
        return _collect(iter(find_default_violations(default, schema)))
    except ApiError as error:
        return _ignore_unsupported(error)


def _collect(broken: Iterator[RuleViolation]) -> tuple[str, ...]:
    messages: list[str] = []
    try:
        messages += map(_format_violation, broken)
    except ApiError as error:
        messages += _ignore_unsupported(error)
    return tuple(messages)


def _ignore_unsupported(error: ApiError) -> tuple[str, ...]:
    if error.code != 501:
        raise error
    return ()


def _format_violation(broken: RuleViolation) -> str:
    path = broken.path if not broken.path or broken.path.startswith("[") else f".{broken.path}"
    path += broken.rule.get("fieldPath", "")
    text = broken.message
    if broken.error:
        text = f"the rule {broken.rule['rule']!r} cannot be evaluated: {broken.error}"
    return f"{path or 'the value'}: {text}"
