"""CEL validation rules when a definition is written: whether they can be evaluated, and what that costs.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", "Validation rules"; ``pkg/apis/apiextensions/
validation`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from steersman_cel.cost import DEFINITION_LIMIT, EXPRESSION_LIMIT, over_budget, repeated_cost
from steersman_cel.engine import CompilationError
from steersman_cel.evaluation import RULES, program, schema_key
from steersman_cel.types import Type, schema_type
from steersman_testing.apiserver.definitions.schemas import Scope
from steersman_testing.apiserver.failures import FieldError, forbidden_field, invalid_value
from steersman_testing.apiserver.values import JsonObject, list_at

_UNTYPED = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: "
    "unable to convert structural schema to CEL declarations"
)
_TOTAL = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
_SHARE = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
_NAMED = 4


class RuleChecks:
    """Checks the rules of the schema ``root``, place by place, and counts what they cost."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._costs: list[tuple[int, str]] = []

    def __call__(self, schema: JsonObject, path: str, scope: Scope) -> Iterator[FieldError]:
        """What is wrong with the rules at one place.

        Raises:
            ApiError: 501, a rule cannot be evaluated here.
        """
        root = schema is self._root
        kind = schema_type(schema, root=root)
        if kind is None:
            yield FieldError(f"{path}.{RULES}", "InternalError", _UNTYPED)
            return
        key = schema_key(schema, root)
        for position, rule in enumerate(list_at(schema, RULES)):
            yield from self._rule(rule, key, f"{path}.{RULES}[{position}]", scope, kind)

    def total_errors(self, path: str) -> Iterator[FieldError]:
        """Whether all rules together cost too much; to be asked when all are checked."""
        total = sum(cost for cost, _ in self._costs)
        if total <= DEFINITION_LIMIT:
            return
        dear = [(cost, place) for cost, place in self._costs if cost >= DEFINITION_LIMIT // 100]
        for _, place in sorted(dear, key=lambda c: -c[0])[:_NAMED]:
            yield forbidden_field(place, _SHARE)
        yield forbidden_field(path, over_budget(_TOTAL, total, DEFINITION_LIMIT))

    def _cost(self, what: str, cost: int, place: str) -> Iterator[FieldError]:
        self._costs.append((cost, place))
        if cost > EXPRESSION_LIMIT:
            yield forbidden_field(place, over_budget(what, cost, EXPRESSION_LIMIT))

    def _rule(self, rule: JsonObject, key: bytes, place: str, scope: Scope, kind: Type) -> Iterator[FieldError]:
        optional = bool(rule.get("optionalOldSelf"))
        uses_old = False
        try:
            found = program(key, rule["rule"], optional)
            uses_old = found.uses_old
            if found.type.name != "bool":
                yield _wrong(rule, f"{place}.rule", "cel expression must evaluate to a bool")
            else:
                cost = repeated_cost(found.cost, scope.times, kind)
                yield from self._cost("estimated rule cost", cost, f"{place}.rule")
                if rule.get("messageExpression"):
                    yield from self._message(rule, key, f"{place}.messageExpression")
        except CompilationError as error:
            yield _wrong(rule, f"{place}.rule", str(error))
        if uses_old and scope.uncorrelated:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {scope.uncorrelated}"
            yield invalid_value(f"{place}.rule", rule["rule"], text)
        elif not uses_old and "optionalOldSelf" in rule:
            text = "may not be set if oldSelf is not used in rule"
            yield invalid_value(f"{place}.optionalOldSelf", rule["optionalOldSelf"], text)

    def _message(self, rule: JsonObject, key: bytes, place: str) -> Iterator[FieldError]:
        try:
            found = program(key, rule["messageExpression"], bool(rule.get("optionalOldSelf")))
        except CompilationError as error:
            yield _wrong(rule, place, f"messageExpression {error}")
            return
        if found.type.name != "string":
            yield _wrong(rule, place, "messageExpression must evaluate to a string")
            return
        # However often the rule is broken, what it says is counted once.
        yield from self._cost("estimated messageExpression cost", found.cost, place)


def _wrong(rule: JsonObject, place: str, text: str) -> FieldError:
    # The rule is shown in the form that the real server has inside.
    shown = {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    return FieldError(place, "FieldValueInvalid", f"Invalid value: {_in_go(shown)}: {text}")


def _in_go(value: JsonObject) -> str:
    """``value`` in JSON as Go writes it, which could stand in HTML."""
    return msgspec.json.encode(value).decode().translate({ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
