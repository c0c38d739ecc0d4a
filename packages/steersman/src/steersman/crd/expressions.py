"""CEL expressions of rules, read as the API server reads them: syntax, functions, the types of what they name.

The engine is the extra ``cel``. Where it is not installed, expressions are left to the API server, with one warning.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any

import msgspec

from steersman.crd.errors import SchemaError
from steersman.errors import ApiError
from steersman.meta import Rule

Schema = dict[str, Any]

_PACKAGE = "steersman_cel"


def check_expressions(rule: Rule, schema: Schema, *, root: bool) -> None:
    """Whether the expressions of ``rule`` can be evaluated on values of ``schema``.

    Args:
        rule: its ``rule`` gives a bool, its ``message_expression`` a text.
        schema: of the value that the rule is about.
        root: whether that is a whole object, whose name can be seen.

    Raises:
        SchemaError: they cannot.
    """
    if not is_cel_available():
        return
    # The order of fields says nothing to a rule, so one check does for the same type anywhere.
    cache_key = msgspec.json.encode((schema, root), order="sorted")
    for label, expression, expected_type in (
        ("rule", rule.rule, "bool"),
        ("message", rule.message_expression, "string"),
    ):
        if expression and (problem := _find_problem(expression, cache_key, expected_type, rule.optional_old_self)):
            raise SchemaError(f"the {label} {expression!r} {problem}")


@cache
def is_cel_available() -> bool:
    """Whether there is an engine for CEL; the first time that there is none, it warns."""
    if find_spec(_PACKAGE) is not None:
        return True
    warnings.warn("CEL rules are left to the API server to check: install steersman[cel]", stacklevel=2)
    return False


@lru_cache(maxsize=4096)
def _find_problem(expression: str, cache_key: bytes, expected_type: str, optional_old: bool) -> str:
    """What is wrong with an expression, as the end of a sentence; empty if it is well."""
    # Definitions without rules need none of it.
    from steersman_cel.engine import CompilationError, compile_rule
    from steersman_cel.types import type_from_schema

    schema, root = msgspec.json.decode(cache_key)
    self_type = type_from_schema(schema, root=root)
    if self_type is None:
        return "is about a value without a type, which no rule can see: put it on a struct around, or give it a type"
    try:
        result_type = compile_rule(expression, self_type, optional_old_self=optional_old).type
    except CompilationError as error:
        return f"is no CEL for this type: {_shorten(str(error))}"
    except ApiError as error:
        if error.code == 501:
            # What the engine lacks, the API server may have.
            return ""
        raise
    if result_type.name != expected_type:
        return f"gives a {result_type}, but must give a {expected_type}"
    return ""


def _shorten(text: str) -> str:
    """What the API server says, on one line and without the drawing of where."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(" |")]
    return "; ".join(line.removeprefix("compilation failed: ").strip() for line in lines)
