"""Expressions of rules: checked as cel-go checks them, evaluated by cel-cpp (``cel-expr-python``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

from steersman.testing.apiserver import failures
from steersman.testing.apiserver.cel.checker import check, report
from steersman.testing.apiserver.cel.declarations import functions
from steersman.testing.apiserver.cel.functions import IMPLEMENTATIONS
from steersman.testing.apiserver.cel.rewriting import PREFIX, rewrite
from steersman.testing.apiserver.cel.syntax import Tree, read, write
from steersman.testing.apiserver.cel.types import Type, optional_of

_VARIABLES = ("self", "oldSelf", "object", "oldObject", "request")
_ENGINE = ("cel", "ext.ext_strings", "ext.ext_optional", "ext.ext_bindings")
_EXTENSIONS = ("ExtStrings", "ExtOptional", "ExtBindings")
_KINDS = ("BOOL", "INT", "UINT", "DOUBLE", "STRING", "BYTES", "LIST", "MAP", "TIMESTAMP", "DURATION", "NULL")
_KIND_OF = {
    "bool": "BOOL",
    "int": "INT",
    "uint": "UINT",
    "double": "DOUBLE",
    "string": "STRING",
    "bytes": "BYTES",
    "list": "LIST",
    "map": "MAP",
    "timestamp": "TIMESTAMP",
    "duration": "DURATION",
}
# What takes other things than the functions that are declared.
_INNER = {
    "sortBy": [("LIST", "LIST")],
    "format.isNamed": [("STRING",)],
    "format.problems": [("STRING", "STRING")],
    "@indices": [("LIST",)],
    "@mapOf": [("LIST", "LIST")],
    "@merged": [("LIST",)],
    "@same": [("LIST", "LIST", "STRING"), ("MAP", "MAP", "STRING")],
    "@union": [("LIST", "LIST", "STRING")],
}
_PREFIXES = re.compile(r"^(?:INVALID_ARGUMENT|UNKNOWN|NOT_FOUND|OUT_OF_RANGE|UNIMPLEMENTED|INTERNAL): ")
_ABSENT_KEY = re.compile(r'Key not found in map : "(.*)"')
_OUT_OF_BOUNDS = re.compile(r"Index error: index=(-?\d+) size=\d+")


class CompilationError(Exception):
    """An expression is wrong; the text is what cel-go says of it."""


class EvaluationError(Exception):
    """An expression cannot be evaluated with the values at hand; the text says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """An expression that can be evaluated.

    Attributes:
        type: of its value.
        uses_old: whether it looks at ``oldSelf``.
    """

    type: Type
    uses_old: bool
    _expression: Any

    def run(self, variables: Mapping[str, Any]) -> Any:
        """The value of the expression, in plain Python.

        Raises:
            EvaluationError: it has none.
        """
        try:
            result = self._expression.eval(data=dict(variables))
        except RuntimeError as error:
            raise EvaluationError(_told(str(error))) from error
        if result.type().name() == "ERROR":
            raise EvaluationError(_told(str(result.plain_value())))
        return result.plain_value()


def _told(text: str) -> str:
    text = _PREFIXES.sub("", text)
    if found := _ABSENT_KEY.fullmatch(text):
        return f"no such key: {found[1]}"
    if found := _OUT_OF_BOUNDS.fullmatch(text):
        return f"index out of bounds: {found[1]}"
    return text.replace("divide by zero", "division by zero")


def compile_rule(expression: str, self_type: Type, *, optional_old: bool) -> Program:
    """The program of ``expression`` on a ``self`` and an ``oldSelf`` of ``self_type``.

    Args:
        optional_old: whether ``oldSelf`` is an optional of that type; ``hasOldSelf`` tells then whether there is one.

    Raises:
        CompilationError: the expression is malformed, or its types do not fit.
        ApiError: 501, it uses a function that is not imitated, or the engine is not installed.
    """
    variables = {"self": self_type, "oldSelf": optional_of(self_type) if optional_old else self_type}
    return compile_expression(expression, variables, optional_old=optional_old)


def compile_expression(expression: str, variables: Mapping[str, Type], *, optional_old: bool = False) -> Program:
    """The program of ``expression`` on ``variables``, by their types. Raises as ``compile_rule``."""
    tree = _parsed(expression)
    checked = check(tree, variables)
    if checked.problems:
        raise CompilationError(report(checked.problems, expression))
    rewritten = rewrite(tree, checked, optional_old=optional_old)
    return Program(checked.type, "oldSelf" in checked.names, _environment().deserialize(write(rewritten)))


def _parsed(expression: str) -> Tree:
    try:
        return read(_environment().compile(expression, disable_check=True).serialize())
    except RuntimeError as error:
        raise CompilationError(
            str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        ) from error


@cache
def _environment() -> Any:
    # The package has no type information that covers its submodules.
    try:
        cel, *extensions = (import_module(f"cel_expr_python.{name}") for name in _ENGINE)
    except ModuleNotFoundError as error:
        raise failures.refused_here(f"CEL rules without {error.name}: install steersman[testing]") from error
    return cel.NewEnv(
        variables={**dict.fromkeys(_VARIABLES, cel.Type.DYN), "hasOldSelf": cel.Type.BOOL},
        extensions=[made() for made in (e.__dict__[n] for e, n in zip(extensions, _EXTENSIONS, strict=True))],
        functions=[_declared(cel, name) for name in IMPLEMENTATIONS],
    )


def _declared(cel: Any, name: str) -> Any:
    implementation = IMPLEMENTATIONS[name]
    overloads = [
        cel.Overload(
            f"{PREFIX}{name}_{'_'.join(kinds)}".lower(),
            return_type=cel.Type.DYN,
            parameters=[getattr(cel.Type, kind) for kind in kinds],
            is_member=False,
            impl=implementation,
        )
        for kinds in _signatures(name)
    ]
    return cel.FunctionDecl(PREFIX + name, overloads)


def _signatures(name: str) -> list[tuple[str, ...]]:
    """What ``name`` may be given, in the engine's kinds; Kubernetes' own types are texts."""
    if name in _INNER:
        return _INNER[name]
    target, _, function = name.rpartition(".")
    declared = functions()
    found = declared.get(name) or [o for o in declared[function] if o.params and o.params[0].name == target]
    told = {kinds for o in found for kinds in product(*(_kinds_of(p) for p in o.params))}
    return sorted(told)


def _kinds_of(param: Type) -> tuple[str, ...]:
    if param.param or param.name == "dyn":
        return _KINDS
    return (_KIND_OF.get(param.name, "STRING"),)
