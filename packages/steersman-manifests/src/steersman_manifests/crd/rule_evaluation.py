"""Evaluation of CEL rules without a server.

Rules with functions that the engine does not implement are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from steersman.errors import ApiError
from steersman_manifests.crd.rules import RULES, Schema

if TYPE_CHECKING:
    from steersman_cel.validation import RuleViolation


def has_rules(schema: Any) -> bool:
    """Return True if ``schema`` has rules at any level."""
    if isinstance(schema, list):
        return any(map(has_rules, cast("list[Any]", schema)))
    if not isinstance(schema, dict):
        return False
    return RULES in schema or any(map(has_rules, cast("Schema", schema).values()))


def rule_violations(schema: Schema, value: Any, old_value: Any, *, root: bool) -> tuple[str, ...]:
    """One message per violated rule, with its path: ``.spec.size: a size never shrinks``.

    Args:
        schema: schema of the value.
        value: value in wire form, with defaults, valid except for its rules.
        old_value: current value in wire form. None if the value is new.
        root: the value is a whole object.
    """
    from steersman_cel.validation import find_violations
    from steersman_cel.values import MISSING

    return _collect(find_violations(value, MISSING if old_value is None else old_value, schema, root=root))


def default_violations(schema: Schema, default: Any) -> tuple[str, ...]:
    """One message per rule of ``schema`` that its default violates."""
    if not has_rules(schema):
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
