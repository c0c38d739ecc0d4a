"""Validation of CEL rules in definitions: compilation and estimated cost.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", "Validation rules"; ``pkg/apis/apiextensions/
validation`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from steersman_cel.cost import CRD_COST_LIMIT, RULE_COST_LIMIT, budget_error, total_cost
from steersman_cel.engine import CompilationError
from steersman_cel.types import Type, type_from_schema
from steersman_cel.validation import VALIDATIONS_KEY, cached_program, schema_key
from steersman_testing.apiserver.definitions.schema_validation import SchemaContext
from steersman_testing.apiserver.failures import InvalidFieldError, forbidden_field, invalid_value
from steersman_testing.apiserver.values import JsonObject, get_array

_TYPE_ERROR = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: "
    "unable to convert structural schema to CEL declarations"
)
_TOTAL_COST = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
_COST_CONTRIBUTION = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
_MAX_REPORTED_RULES = 4


class RuleValidator:
    """Validates the CEL rules of the schema ``root`` and estimates their cost."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._costs: list[tuple[int, str]] = []

    def __call__(self, schema: JsonObject, path: str, context: SchemaContext) -> Iterator[InvalidFieldError]:
        """Yield the errors of the rules of one subschema.

        Raises:
            ApiError: 501, the evaluation of a rule is not implemented.
        """
        root = schema is self._root
        kind = type_from_schema(schema, root=root)
        if kind is None:
            yield InvalidFieldError(f"{path}.{VALIDATIONS_KEY}", "InternalError", _TYPE_ERROR)
            return
        key = schema_key(schema, root)
        for position, rule in enumerate(get_array(schema, VALIDATIONS_KEY)):
            yield from self._rule_errors(rule, key, f"{path}.{VALIDATIONS_KEY}[{position}]", context, kind)

    def total_cost_errors(self, path: str) -> Iterator[InvalidFieldError]:
        """Yield the errors of the total cost, after all rules were validated."""
        total = sum(cost for cost, _ in self._costs)
        if total <= CRD_COST_LIMIT:
            return
        expensive = [(cost, place) for cost, place in self._costs if cost >= CRD_COST_LIMIT // 100]
        for _, place in sorted(expensive, key=lambda c: -c[0])[:_MAX_REPORTED_RULES]:
            yield forbidden_field(place, _COST_CONTRIBUTION)
        yield forbidden_field(path, budget_error(_TOTAL_COST, total, CRD_COST_LIMIT))

    def _record_cost(self, subject: str, cost: int, path: str) -> Iterator[InvalidFieldError]:
        self._costs.append((cost, path))
        if cost > RULE_COST_LIMIT:
            yield forbidden_field(path, budget_error(subject, cost, RULE_COST_LIMIT))

    def _rule_errors(
        self, rule: JsonObject, key: bytes, path: str, context: SchemaContext, kind: Type
    ) -> Iterator[InvalidFieldError]:
        optional = bool(rule.get("optionalOldSelf"))
        uses_old_self = False
        try:
            found = cached_program(key, rule["rule"], optional)
            uses_old_self = found.uses_old_self
            if found.type.name != "bool":
                yield _invalid_rule(rule, f"{path}.rule", "cel expression must evaluate to a bool")
            else:
                cost = total_cost(found.cost, context.max_cardinality, kind)
                yield from self._record_cost("estimated rule cost", cost, f"{path}.rule")
                if rule.get("messageExpression"):
                    yield from self._message_errors(rule, key, f"{path}.messageExpression")
        except CompilationError as error:
            yield _invalid_rule(rule, f"{path}.rule", str(error))
        if uses_old_self and context.uncorrelatable_path:
            path_text = context.uncorrelatable_path
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {path_text}"
            yield invalid_value(f"{path}.rule", rule["rule"], text)
        elif not uses_old_self and "optionalOldSelf" in rule:
            text = "may not be set if oldSelf is not used in rule"
            yield invalid_value(f"{path}.optionalOldSelf", rule["optionalOldSelf"], text)

    def _message_errors(self, rule: JsonObject, key: bytes, path: str) -> Iterator[InvalidFieldError]:
        try:
            found = cached_program(key, rule["messageExpression"], bool(rule.get("optionalOldSelf")))
        except CompilationError as error:
            yield _invalid_rule(rule, path, f"messageExpression {error}")
            return
        if found.type.name != "string":
            yield _invalid_rule(rule, path, "messageExpression must evaluate to a string")
            return
        # The message counts once, however often the rule fails.
        yield from self._record_cost("estimated messageExpression cost", found.cost, path)


def _invalid_rule(rule: JsonObject, path: str, text: str) -> InvalidFieldError:
    # The error shows the rule with the field names of the internal Go type.
    go_rule = {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    return InvalidFieldError(path, "FieldValueInvalid", f"Invalid value: {_go_json(go_rule)}: {text}")


def _go_json(value: JsonObject) -> str:
    """Return ``value`` as JSON in Go's form, which escapes HTML."""
    return msgspec.json.encode(value).decode().translate({ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
