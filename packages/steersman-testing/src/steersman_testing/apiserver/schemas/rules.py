"""CEL validation rules of custom resources: errors for violations.

Rules that cannot be evaluated (see ``steersman_cel.rewriting``) are rejected with 501 in definitions, so no rule is
ignored.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from steersman_cel.validation import RuleViolation, find_default_violations, schema_rules
from steersman_testing.apiserver.failures import InvalidFieldError
from steersman_testing.apiserver.schemas.paths import InvalidFieldPath, resolve_path
from steersman_testing.apiserver.schemas.schema_cache import SchemaCache
from steersman_testing.apiserver.schemas.validation import format_schema_value
from steersman_testing.apiserver.values import JsonObject

RULES_NOT_CHECKED = InvalidFieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation",
)
# Errors with these reasons prevent the evaluation of rules.
BLOCKING_REASONS = {
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}
_rules_of_objects = SchemaCache(partial(schema_rules, root=True))


def rule_errors(obj: Any, old: Any, schema: JsonObject) -> list[InvalidFieldError]:
    """Return the errors of violated rules.

    Args:
        old: the object before an update, or MISSING.
    """
    return [_rule_error(b) for b in _rules_of_objects(schema).find_violations(obj, old)]


def default_rule_errors(default: Any, schema: JsonObject, path: str) -> list[InvalidFieldError]:
    """Return the errors of rules that a default in a definition violates."""
    return [_rule_error(b) for b in find_default_violations(default, schema, path=path)]


def _rule_error(broken: RuleViolation) -> InvalidFieldError:
    return _evaluation_error(broken) if broken.error else _validation_error(broken)


def _evaluation_error(broken: RuleViolation) -> InvalidFieldError:
    """Return the error for a rule whose evaluation failed."""
    rule = broken.rule
    subject = (rule.get("message") or rule["rule"]).strip()
    description = f"{broken.error} evaluating rule: {subject}"
    if broken.error.startswith("no such overload"):
        takes = "call arguments did not match a supported operator, function or macro signature"
        description = f"'{broken.error}': {takes} for rule: {subject}"
    text = f'Invalid value: "{broken.schema.get("type", "")}": {description}'
    return InvalidFieldError(broken.path or "<nil>", "FieldValueInvalid", text)


def _validation_error(broken: RuleViolation) -> InvalidFieldError:
    reason = broken.rule.get("reason") or "FieldValueInvalid"
    # Errors show scalars, but not objects and lists.
    subject = "" if broken.schema.get("type") in ("object", "array") else f": {format_schema_value(broken.value)}"
    messages = {
        "FieldValueForbidden": f"Forbidden: {broken.message}",
        "FieldValueRequired": f"Required value: {broken.message}",
        "FieldValueDuplicate": f"Duplicate value{subject}",
    }
    return InvalidFieldError(
        _error_path(broken), reason, messages.get(reason, f"Invalid value{subject}: {broken.message}")
    )


def _error_path(broken: RuleViolation) -> str:
    path = broken.path
    if not broken.rule.get("fieldPath"):
        return path or "<nil>"
    try:
        found = resolve_path(broken.rule["fieldPath"], broken.schema).path
    except InvalidFieldPath:
        return path or "<nil>"
    return f"{path}.{found}" if path else found
