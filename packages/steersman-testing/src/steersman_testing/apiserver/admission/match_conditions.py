"""``matchConditions`` of webhooks: CEL expressions for requests.

Source: KEP-3716; ``BuildRequestType`` in ``pkg/admission/plugin/cel/compile.go`` of ``k8s.io/apiserver`` 1.36.
"""

from __future__ import annotations

from functools import lru_cache

from steersman_cel.engine import CompilationError, EvaluationError, Program, compile_expression
from steersman_cel.types import BOOL, DYN, STRING, Type, list_of, map_of
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.values import JsonObject


def _string_fields(name: str, *fields: str) -> Type:
    return Type(f"kubernetes.{name}", fields=dict.fromkeys(fields, STRING))


_KIND = _string_fields("GroupVersionKind", "group", "version", "kind")
_RESOURCE = _string_fields("GroupVersionResource", "group", "version", "resource")
_USER = Type(
    "kubernetes.UserInfo",
    fields={
        "username": STRING,
        "uid": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
)
_REQUEST = Type(
    "kubernetes.AdmissionRequest",
    fields={
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
)
_VARIABLES = {"object": DYN, "oldObject": DYN, "request": _REQUEST}


class MatchConditionError(Exception):
    """The evaluation of a match condition failed."""


def condition_error(expression: str) -> str:
    """Return the compilation error of an expression, or an empty string.

    Raises:
        ApiError: 501, its evaluation is not implemented.
    """
    try:
        found = _compile(expression).type
    except CompilationError as error:
        if "undeclared reference to 'authorizer'" in str(error):
            raise failures.not_implemented(
                f"the variable authorizer of the match condition {expression!r}"
            ) from error
        return str(error)
    return "" if found.name == "bool" else f"must evaluate to bool but got {found}"


def conditions_match(
    conditions: list[JsonObject], new: JsonObject | None, old: JsonObject | None, request: JsonObject
) -> bool:
    """Return True if all ``conditions`` hold.

    Raises:
        MatchConditionError: a condition fails and no condition is false.
    """
    request_fields = {k: v for k, v in request.items() if k in (_REQUEST.fields or {})}
    data = {"object": new, "oldObject": old, "request": request_fields}
    errors: list[str] = []
    for condition in conditions:
        expression = condition["expression"]
        try:
            if _compile(expression).evaluate(data) is not True:
                return False
        except EvaluationError as error:
            errors.append(f"expression '{expression}' resulted in error: {error}")
    if errors:
        raise MatchConditionError(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
    return True


@lru_cache(maxsize=1024)
def _compile(expression: str) -> Program:
    return compile_expression(expression, _VARIABLES)
