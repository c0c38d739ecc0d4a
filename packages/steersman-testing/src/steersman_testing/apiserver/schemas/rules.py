"""CEL validation rules of custom resources: what the server says of those that an object breaks.

What cannot be told apart here (see ``cel.rewriting``) is refused with 501 when a definition is written, so no rule is
ever passed over in silence.
"""

from __future__ import annotations

from typing import Any

from steersman_cel.evaluation import Broken, broken_by_default, broken_rules
from steersman_testing.apiserver.failures import FieldError
from steersman_testing.apiserver.schemas.paths import PathError, find_place
from steersman_testing.apiserver.schemas.validation import shown_value
from steersman_testing.apiserver.values import JsonObject

NOT_CHECKED = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation",
)
# With one of these, the rules are not evaluated at all.
BLOCKING = {
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}


def check_rules(obj: Any, old: Any, schema: JsonObject) -> list[FieldError]:
    """The rules that ``obj`` breaks; ``old`` is what it replaces, or MISSING."""
    return [_error(b) for b in broken_rules(obj, old, schema, root=True)]


def check_default(default: Any, schema: JsonObject, path: str) -> list[FieldError]:
    """The rules that the default at ``path`` in a definition breaks."""
    return [_error(b) for b in broken_by_default(default, schema, path=path)]


def _error(broken: Broken) -> FieldError:
    return _failed(broken) if broken.error else _refused(broken)


def _failed(broken: Broken) -> FieldError:
    """The refusal of a value that a rule cannot be evaluated on."""
    rule = broken.rule
    subject = (rule.get("message") or rule["rule"]).strip()
    told = f"{broken.error} evaluating rule: {subject}"
    if broken.error.startswith("no such overload"):
        takes = "call arguments did not match a supported operator, function or macro signature"
        told = f"'{broken.error}': {takes} for rule: {subject}"
    text = f'Invalid value: "{broken.schema.get("type", "")}": {told}'
    return FieldError(broken.path or "<nil>", "FieldValueInvalid", text)


def _refused(broken: Broken) -> FieldError:
    reason = broken.rule.get("reason") or "FieldValueInvalid"
    # Objects and lists are not shown, scalars are.
    subject = "" if broken.schema.get("type") in ("object", "array") else f": {shown_value(broken.value)}"
    texts = {
        "FieldValueForbidden": f"Forbidden: {broken.message}",
        "FieldValueRequired": f"Required value: {broken.message}",
        "FieldValueDuplicate": f"Duplicate value{subject}",
    }
    return FieldError(_place(broken), reason, texts.get(reason, f"Invalid value{subject}: {broken.message}"))


def _place(broken: Broken) -> str:
    path = broken.path
    if not broken.rule.get("fieldPath"):
        return path or "<nil>"
    try:
        found = find_place(broken.rule["fieldPath"], broken.schema).path
    except PathError:
        return path or "<nil>"
    return f"{path}.{found}" if path else found
