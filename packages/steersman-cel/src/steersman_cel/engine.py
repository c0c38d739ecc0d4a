"""Compilation of expressions with cel-go's type rules, and evaluation by cel-cpp."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

from steersman_cel.checker import CheckedExpr, check_types, format_errors
from steersman_cel.cost import estimate_cost
from steersman_cel.declarations import declared_functions
from steersman_cel.errors import not_implemented
from steersman_cel.functions import IMPLEMENTATIONS, Implementation, to_engine_value
from steersman_cel.literals import (
    constant_calls,
    constant_errors,
    invalid_literals,
    mixed_type_literals,
)
from steersman_cel.precision import SUB_MICROSECOND_ERROR
from steersman_cel.rewrite import FUNCTION_PREFIX, rewrite_tree
from steersman_cel.syntax_tree import Tree, decode_tree, encode_tree, selected_fields
from steersman_cel.types import DYN, Type, optional_of

_VARIABLES = ("self", "oldSelf", "object", "oldObject", "request")
_ENGINE_MODULES = ("cel", "ext.ext_strings", "ext.ext_optional")
_EXTENSIONS = ("ExtStrings", "ExtOptional")
_ENGINE_TYPES = ("BOOL", "INT", "UINT", "DOUBLE", "STRING", "BYTES", "LIST", "MAP", "TIMESTAMP", "DURATION", "NULL")
_ENGINE_TYPE_OF = {
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
# Parameter types of internal functions, and of functions that accept more than they declare.
_INTERNAL_SIGNATURES = {
    "list.indexOf": [("LIST", kind) for kind in _ENGINE_TYPES],
    "list.lastIndexOf": [("LIST", kind) for kind in _ENGINE_TYPES],
    "format.isNamed": [("STRING",)],
    "format.problems": [("STRING", "STRING")],
    "@exact.duration": [("STRING",)],
    "@exact.timestamp": [("STRING",)],
    "@keys": [("LIST",), ("MAP",)],
    "@mapOf": [("LIST", "LIST")],
    "@merged": [("LIST",)],
    "@nanoseconds": [("STRING",)],
    "@same": [(left, right, "STRING") for left in ("LIST", "MAP", "STRING") for right in _ENGINE_TYPES],
    "@sortByAssociatedKeys": [("LIST", "LIST")],
    "@trimmed": [("STRING",)],
    "@union": [("LIST", "LIST", "STRING")],
    "@unsignedSum": [("LIST",)],
    "@within": [(item, "LIST", "STRING") for item in ("LIST", "MAP", "STRING")],
}
_ERROR_PREFIXES = re.compile(r"^[A-Z]+(?:_[A-Z]+)*: ")
_MISSING_KEY_ERROR = re.compile(r'Key not found in map : "(.*)"')
_OUT_OF_BOUNDS_ERROR = re.compile(r"Index error: index=(-?\d+) size=\d+")
_NO_OVERLOAD_ERROR = re.compile(r"No matching overloads found : (?:\(.*\)\.)?([^\s(]+)\(")
# Messages of cel-go by message of cel-cpp.
_CEL_GO_MESSAGES = {
    "divide by zero": "division by zero",
    "cannot convert string to int": "type conversion error from 'string' to 'int'",
    "cannot convert string to uint": "type conversion error from 'string' to 'uint'",
    "cannot convert string to double": "type conversion error from 'string' to 'double'",
    "Type conversion error from 'string' to 'bool'": "type conversion error from 'string' to 'bool'",
    "double out of int64 range": "integer overflow",
    "uint64 out of int64 range": "integer overflow",
    "double out of uint64 range": "unsigned integer overflow",
    "int64 out of uint64 range": "unsigned integer overflow",
    "String to Duration conversion failed": "type conversion error from 'string' to 'google.protobuf.Duration'",
    "String to Timestamp conversion failed": "type conversion error from 'string' to 'google.protobuf.Timestamp'",
    "malformed UTF-8 bytes": "invalid UTF-8 in bytes, cannot convert to string",
}
_MACRO_ERRORS = (
    (
        re.compile(r"(?:all|exists|exists_one)\(\) variable name must be a simple identifier"),
        "argument must be a simple name",
    ),
    (re.compile(r"(?:map|filter)\(\) variable name must be a simple identifier"), "argument is not an identifier"),
    (re.compile(r"has\(\) argument must be a field selection"), "invalid argument to has() macro"),
    (re.compile(r"\nERROR: <input>:4294967295:0: <<nil>> parsetree$"), ""),
)


class CompilationError(Exception):
    """An expression is invalid. The message is that of the API server."""


class EvaluationError(Exception):
    """An evaluation failed, for example by a missing key. The message is that of cel-go."""


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression.

    Attributes:
        type: type of the result.
        uses_old_self: the expression reads ``oldSelf``.
        cost: estimated maximum cost, in the unit of ``steersman_cel.cost``.
        fields: fields of ``self`` and ``oldSelf`` that the expression reads. None for all.
    """

    type: Type
    uses_old_self: bool
    _expression: Any
    cost: int = 0
    fields: frozenset[str] | None = None

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Evaluate the expression.

        Args:
            variables: values by name, as ``conversion.to_cel`` returns them.

        Returns:
            The result as a Python value.

        Raises:
            EvaluationError: the evaluation failed.
            ApiError: 501 if the engine exceeds a limit of its own.
        """
        try:
            result = self._expression.eval(data=dict(variables))
        except RuntimeError as error:
            raise EvaluationError(_translate_error(str(error))) from error
        if result.type().name() == "ERROR":
            raise EvaluationError(_translate_error(str(result.plain_value())))
        return result.plain_value()


def _translate_error(text: str) -> str:
    text = _ERROR_PREFIXES.sub("", text)
    if text.startswith("Iteration budget exceeded"):
        raise not_implemented("CEL that goes over more than 10,000 items in one evaluation")
    if text.startswith(SUB_MICROSECOND_ERROR):
        raise not_implemented(text)
    if found := _MISSING_KEY_ERROR.fullmatch(text):
        return f"no such key: {found[1]}"
    if found := _OUT_OF_BOUNDS_ERROR.fullmatch(text):
        return f"index out of bounds: {found[1]}"
    if found := _NO_OVERLOAD_ERROR.match(text):
        return f"no such overload{': size' if found[1] == 'size' else ''}"
    return _CEL_GO_MESSAGES.get(text, text)


def compile_rule(expression: str, self_type: Type, *, optional_old_self: bool) -> Program:
    """Compile a rule with the variables ``self`` and ``oldSelf`` of ``self_type``.

    Args:
        expression: CEL source.
        self_type: type of the value that the rule validates.
        optional_old_self: ``oldSelf`` is an optional. It has a value if the variable ``hasOldSelf`` is true.

    Raises:
        CompilationError: a syntax or type error.
        ApiError: 501 if a function is not implemented, or the engine is not installed.
    """
    variables = {"self": self_type, "oldSelf": optional_of(self_type) if optional_old_self else self_type}
    tree, checked = _parse_and_check(expression, variables)
    cost = estimate_cost(tree.root, checked, self_type)
    program = _build_program(tree, checked, optional_old_self=optional_old_self)
    return replace(program, cost=cost, fields=selected_fields(tree.root, ("self", "oldSelf")))


def compile_expression(expression: str, variables: Mapping[str, Type]) -> Program:
    """Compile an expression with the types of ``variables``. Its cost is not estimated.

    Raises as ``compile_rule``.
    """
    return _build_program(*_parse_and_check(expression, variables), optional_old_self=False)


def _parse_and_check(expression: str, variables: Mapping[str, Type]) -> tuple[Tree, CheckedExpr]:
    tree = _parse(expression)
    checked = check_types(tree, variables)
    literal_errors = (*mixed_type_literals(tree, checked), *invalid_literals(tree, checked))
    problems = checked.errors or [(tree.positions.get(ident, 0), text) for ident, text in literal_errors]
    if problems:
        raise CompilationError(f"compilation failed: {format_errors(problems, expression)}")
    for text in (*constant_errors(tree), *_constant_errors(tree, checked)):
        raise CompilationError(f"program instantiation failed: {text}")
    return tree, checked


def _build_program(tree: Tree, checked: CheckedExpr, *, optional_old_self: bool) -> Program:
    rewritten = rewrite_tree(tree, checked, optional_old_self=optional_old_self)
    return Program(checked.type, "oldSelf" in checked.names, _environment().deserialize(encode_tree(rewritten)))


def _constant_errors(tree: Tree, checked: CheckedExpr) -> Iterator[str]:
    for call in constant_calls(tree):
        rewritten = rewrite_tree(Tree(call, tree.positions), checked, optional_old_self=False)
        constant = Program(DYN, False, _environment().deserialize(encode_tree(rewritten)))
        try:
            constant.evaluate({})
        except EvaluationError as error:
            yield str(error)


def _parse(expression: str) -> Tree:
    try:
        return decode_tree(_environment().compile(expression, disable_check=True).serialize())
    except RuntimeError as error:
        text = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        for pattern, replacement in _MACRO_ERRORS:
            text = pattern.sub(replacement, text)
        raise CompilationError(f"compilation failed: {text}") from error


@cache
def _environment() -> Any:
    # The package has no type information for its submodules.
    try:
        cel, *extensions = (import_module(f"cel_expr_python.{name}") for name in _ENGINE_MODULES)
    except ModuleNotFoundError as error:
        raise not_implemented(f"CEL rules without {error.name}: install steersman[testing]") from error
    return cel.NewEnv(
        variables={**dict.fromkeys(_VARIABLES, cel.Type.DYN), "hasOldSelf": cel.Type.BOOL},
        extensions=[made() for made in (e.__dict__[n] for e, n in zip(extensions, _EXTENSIONS, strict=True))],
        functions=[_declare_function(cel, name) for name in IMPLEMENTATIONS],
    )


def _declare_function(cel: Any, name: str) -> Any:
    implementation = _with_converted_result(IMPLEMENTATIONS[name])
    overloads = [
        cel.Overload(
            f"{FUNCTION_PREFIX}{name}_{'_'.join(kinds)}".lower(),
            return_type=cel.Type.DYN,
            parameters=[getattr(cel.Type, kind) for kind in kinds],
            is_member=False,
            impl=implementation,
        )
        for kinds in _signatures(name)
    ]
    return cel.FunctionDecl(FUNCTION_PREFIX + name, overloads)


def _with_converted_result(implementation: Implementation) -> Implementation:
    return lambda *arguments: to_engine_value(implementation(*arguments))


def _signatures(name: str) -> list[tuple[str, ...]]:
    """Parameter types of a function in the engine. Kubernetes types are strings there."""
    if name in _INTERNAL_SIGNATURES:
        return _INTERNAL_SIGNATURES[name]
    target, _, function = name.rpartition(".")
    declared = declared_functions()
    found = declared.get(name) or [o for o in declared[function] if o.params and o.params[0].name == target]
    signatures = {kinds for o in found for kinds in product(*(_engine_types_of(p) for p in o.params))}
    return sorted(signatures)


def _engine_types_of(param: Type) -> tuple[str, ...]:
    if param.is_type_param or param.name == "dyn":
        return _ENGINE_TYPES
    return (_ENGINE_TYPE_OF.get(param.name, "STRING"),)
