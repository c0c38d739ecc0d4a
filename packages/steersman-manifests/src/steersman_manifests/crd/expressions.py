"""Compilation of the CEL expressions of rules."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from steersman.errors import ApiError
from steersman.meta import Rule
from steersman_manifests.crd.errors import SchemaError

Schema = dict[str, Any]


def check_expressions(rule: Rule, schema: Schema, *, root: bool) -> None:
    """Check that the expressions of ``rule`` compile for values of ``schema``.

    Args:
        rule: its ``rule`` must return a bool, its ``message_expression`` a string.
        schema: schema of the value.
        root: the value is a whole object, so that rules may read its name.

    Raises:
        SchemaError: an expression does not compile, or returns another type.
    """
    # Rules do not depend on the order of fields: equal types share a cache entry.
    cache_key = msgspec.json.encode((schema, root), order="sorted")
    for label, expression, expected_type in (
        ("rule", rule.rule, "bool"),
        ("message", rule.message_expression, "string"),
    ):
        if expression and (problem := _find_problem(expression, cache_key, expected_type, rule.optional_old_self)):
            raise SchemaError(f"the {label} {expression!r} {problem}")


@lru_cache(maxsize=4096)
def _find_problem(expression: str, cache_key: bytes, expected_type: str, optional_old: bool) -> str:
    """The error of an expression, as the end of a sentence. Empty if it is valid."""
    # Definitions without rules do not need the engine.
    from steersman_cel.engine import CompilationError, compile_rule
    from steersman_cel.types import type_from_schema

    schema, root = msgspec.json.decode(cache_key)
    self_type = type_from_schema(schema, root=root)
    if self_type is None:
        return "is on a value without a type: move it to the enclosing struct, or declare a type"
    try:
        result_type = compile_rule(expression, self_type, optional_old_self=optional_old).type
    except CompilationError as error:
        return f"does not compile for this type: {_shorten(str(error))}"
    except ApiError as error:
        if error.code == 501:
            # The API server may support a function that the engine does not implement.
            return ""
        raise
    if result_type.name != expected_type:
        return f"returns {result_type}, but must return {expected_type}"
    return ""


def _shorten(text: str) -> str:
    """The API server's message on one line, without the source excerpt."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(" |")]
    return "; ".join(line.removeprefix("compilation failed: ").strip() for line in lines)
