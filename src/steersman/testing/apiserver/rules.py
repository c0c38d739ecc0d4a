"""CEL validation rules of custom resources, evaluated by cel-cpp (``cel-expr-python``).

Of the libraries that Kubernetes adds to CEL, these are there: strings, optionals, lists (``sum``, ``min``, ``max``,
``isSorted``), ``find`` and ``findAll``, quantities. A rule that uses another one (``url``, ``ip``, ``cidr``,
``format``, ``semver``, sets, …) is refused with 501 when its definition is created, so no rule is ever passed over in
silence. Rules are parsed but not type-checked, and their cost is not estimated. A field of format ``date-time`` or
``duration`` has that type in its own rules; in those of an enclosing object it is text, and comparing it with a time
fails as an error of evaluation.

Source: "Extend the Kubernetes API with CustomResourceDefinitions", "Validation rules"; "Common Expression Language in
Kubernetes".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any

from steersman.testing.apiserver import failures
from steersman.testing.apiserver.cel_functions import kubernetes_functions
from steersman.testing.apiserver.failures import FieldError, shown
from steersman.testing.apiserver.shapes import SchemaShape
from steersman.testing.apiserver.values import MISSING, JsonObject, child, is_list, is_map, list_at, map_at

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

_ENGINE = ("cel", "ext.ext_strings", "ext.ext_optional", "ext.ext_bindings")
_EXTENSIONS = ("ExtStrings", "ExtOptional", "ExtBindings")
_RULES = "x-kubernetes-validations"
_MISSING_FUNCTIONS = {
    *("url", "isURL", "ip", "isIP", "cidr", "isCIDR", "semver", "isSemver", "authorizer", "format", "sets", "math"),
    *("base64", "indexOf", "lastIndexOf", "slice", "flatten", "distinct", "sort", "sortBy"),
}
_RESERVED = {
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
}
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_DURATION = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h|d|w)")
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}


def has_rules(schema: Any) -> bool:
    """Whether ``schema`` has rules at any depth."""
    if is_list(schema):
        return any(has_rules(s) for s in schema)
    return is_map(schema) and (bool(schema.get(_RULES)) or any(has_rules(s) for s in schema.values()))


def check_definition_rules(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """What is wrong with the rules of a definition.

    Raises:
        ApiError: 501, a rule cannot be evaluated here.
    """
    for position, rule in enumerate(list_at(schema, _RULES)):
        for field in ("rule", "messageExpression"):
            expression = rule.get(field)
            problem = _problem(expression, optional=bool(rule.get("optionalOldSelf"))) if expression else ""
            if problem:
                text = f"Invalid value: {shown(rule)}: compilation failed: {problem}"
                yield FieldError(f"{path}.{_RULES}[{position}].{field}", "FieldValueInvalid", text)
    for name, inner in map_at(schema, "properties").items():
        yield from check_definition_rules(inner, f"{path}.properties[{name}]")
    for field in ("items", "additionalProperties"):
        inner = schema.get(field)
        if is_map(inner):
            yield from check_definition_rules(inner, f"{path}.{field}")


def _problem(expression: str, *, optional: bool) -> str:
    try:
        _compile(expression, optional)
    except RuntimeError as error:
        unknown = set(re.findall(r"undeclared reference to '(\w+)'", str(error)))
        if unknown & _MISSING_FUNCTIONS:
            used = ", ".join(sorted(unknown & _MISSING_FUNCTIONS))
            raise failures.refused_here(f"the CEL function {used} of the rule {expression!r}") from error
        return str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
    return ""


def check_rules(obj: JsonObject, old: Any, schema: JsonObject) -> list[FieldError]:
    """The rules that ``obj`` breaks; ``old`` is what it replaces, or MISSING."""
    return list(_check(obj, old, schema, "", root=True))


def _check(value: Any, old: Any, schema: JsonObject, path: str, *, root: bool = False) -> Iterator[FieldError]:
    rules = list_at(schema, _RULES)
    if rules and value is not None:
        form = str(schema.get("format", "")) if isinstance(value, str) else ""
        after = _subject(value, schema, form, root=root)
        before = MISSING if old is MISSING or old is None else _subject(old, schema, form, root=root)
        case = _Case(value, after, before, form, unchanged=old is not MISSING and value == old)
        for rule in rules:
            yield from _evaluate(rule, case, path)
    if is_map(value):
        for name, content in value.items():
            inner = child(schema.get("properties"), name)
            inner = schema.get("additionalProperties") if inner is MISSING else inner
            if is_map(inner):
                yield from _check(content, child(old, name), inner, f"{path}.{name}" if path else name)
    elif is_list(value):
        items = map_at(schema, "items")
        before_by_key = _items_by_key(old, schema)
        for position, item in enumerate(value):
            former = before_by_key.get(_key(item, schema), MISSING)
            yield from _check(item, former, items, f"{path}[{position}]")


@dataclass(frozen=True, slots=True)
class _Case:
    """What a rule is evaluated on: the value in JSON, and as CEL sees it now and before (or MISSING)."""

    value: Any
    after: Any
    before: Any
    form: str
    unchanged: bool

    def run(self, expression: str, *, optional: bool) -> Any:
        """The result of ``expression``, or ``_Failed``."""
        present = self.before is not MISSING
        former = "formerSelf" if optional else "oldSelf"
        data = {"self": self.after, "hasFormerSelf": present}
        # A variable of type time takes no null, and where there is nothing before, nothing looks at it.
        data[former] = self.before if present else self.after
        result = _compile(expression, optional, self.form).eval(data=data)
        if result.type().name() != "ERROR":
            return result.plain_value()
        text = str(result.plain_value()).partition(": ")[2]
        found = re.fullmatch(r'Key not found in map : "(.*)"', text)
        return _Failed(f"no such key: {found[1]}" if found else text.replace("divide by zero", "division by zero"))


@dataclass(frozen=True, slots=True)
class _Failed:
    """An expression could not be evaluated."""

    text: str


def _evaluate(rule: JsonObject, case: _Case, path: str) -> Iterator[FieldError]:
    expression: str = rule["rule"]
    optional = bool(rule.get("optionalOldSelf"))
    transition = re.search(r"\boldSelf\b", expression) is not None
    # A transition rule needs something to compare with; what did not change is not judged again (KEP-4008).
    if (transition and case.before is MISSING and not optional) or (case.unchanged and not transition):
        return
    outcome = case.run(expression, optional=optional)
    place = (path + rule.get("fieldPath", "")).lstrip(".") or "<nil>"
    if isinstance(outcome, _Failed):
        subject = rule.get("message") or expression
        text = f'Invalid value: "{_type_name(case.value)}": {outcome.text} evaluating rule: {subject}'
        yield FieldError(path or "<nil>", "FieldValueInvalid", text)
    elif outcome is not True:
        yield _broken(rule, place, case.value, _message(rule, case, optional))


def _message(rule: JsonObject, case: _Case, optional: bool) -> str:
    expression = rule.get("messageExpression")
    if expression:
        found = case.run(expression, optional=optional)
        if isinstance(found, str) and found.strip() and "\n" not in found:
            return found
    return rule.get("message") or f"failed rule: {rule['rule'].strip()}"


def _broken(rule: JsonObject, path: str, value: Any, message: str) -> FieldError:
    reason = rule.get("reason") or "FieldValueInvalid"
    # Objects and lists are not shown, scalars are.
    subject = "" if is_map(value) or is_list(value) else f": {shown(value)}"
    texts = {
        "FieldValueForbidden": f"Forbidden: {message}",
        "FieldValueRequired": f"Required value: {message}",
        "FieldValueDuplicate": f"Duplicate value{subject}",
    }
    return FieldError(path, reason, texts.get(reason, f"Invalid value{subject}: {message}"))


@cache
def _compile(expression: str, optional: bool, form: str = "") -> Any:
    if optional:
        former = "hasFormerSelf ? optional.of(formerSelf) : optional.none()"
        expression = f"cel.bind(oldSelf, {former}, ({expression}))"
    return _environment(optional, form).compile(expression)


@cache
def _environment(optional: bool, form: str) -> Any:
    # The package has no type information that covers its submodules.
    try:
        cel, *extensions = (import_module(f"cel_expr_python.{name}") for name in _ENGINE)
    except ModuleNotFoundError as error:
        raise failures.refused_here(f"CEL rules without {error.name}: install steersman[testing]") from error
    types = {"date-time": cel.Type.TIMESTAMP, "duration": cel.Type.DURATION}
    subject = types.get(form, cel.Type.DYN)
    former = "formerSelf" if optional else "oldSelf"
    return cel.NewEnv(
        variables={"self": subject, former: subject, "hasFormerSelf": cel.Type.BOOL},
        extensions=[made() for made in (e.__dict__[n] for e, n in zip(extensions, _EXTENSIONS, strict=True))],
        functions=kubernetes_functions(cel),
    )


def _subject(value: Any, schema: JsonObject, form: str, *, root: bool) -> Any:
    """``value`` as the ``self`` of a rule."""
    if form == "date-time" and isinstance(value, str):
        return datetime.fromisoformat(value)
    if form == "duration" and isinstance(value, str):
        return timedelta(seconds=sum(float(n) * _SECONDS[u] for n, u in _DURATION.findall(value)))
    return _to_cel(value, schema, root=root)


def _to_cel(value: Any, schema: JsonObject, *, root: bool = False) -> Any:
    """``value`` as CEL sees it: names escaped, numbers in their types, nothing but the name of metadata."""
    if is_map(value):
        return _object_to_cel(value, schema, root=root)
    if is_list(value):
        items = map_at(schema, "items")
        return [_to_cel(v, items) for v in value]
    if schema.get("type") == "number" and isinstance(value, int):
        return float(value)
    return value


def _object_to_cel(value: JsonObject, schema: JsonObject, *, root: bool) -> JsonObject:
    properties = map_at(schema, "properties")
    result: JsonObject = {}
    for name, content in value.items():
        if root and name in ("apiVersion", "kind"):
            result[name] = content
        elif root and name == "metadata":
            result[name] = {k: content[k] for k in ("name", "generateName") if k in content}
        elif name in properties:
            # A null counts as an absent field.
            if content is not None:
                result[_escaped(name)] = _to_cel(content, properties[name])
        else:
            result[name] = _to_cel(content, map_at(schema, "additionalProperties"))
    return result


def _escaped(name: str) -> str:
    if name in _RESERVED:
        return f"__{name}__"
    for text, replacement in _ESCAPES:
        name = name.replace(text, replacement)
    return name


def _items_by_key(old: Any, schema: JsonObject) -> dict[Any, Any]:
    if schema.get("x-kubernetes-list-type") != "map" or not is_list(old):
        return {}
    return {_key(item, schema): item for item in old}


def _key(item: Any, schema: JsonObject) -> Any:
    keys = SchemaShape(schema).keys
    return tuple(item.get(k.name, k.default) for k in keys) if is_map(item) and keys else None


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if is_map(value):
        return "object"
    if is_list(value):
        return "array"
    if isinstance(value, str):
        return "string"
    return "integer" if isinstance(value, int) else "number"
