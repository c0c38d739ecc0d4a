"""Comparison of two schemas: values that only the old one accepts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from steersman_manifests.crd.breaking_change import BreakingChange, BreakingChangeRule
from steersman_manifests.crd.rules import RULES, Schema

# True if a greater value of the keyword accepts less.
_BOUND_KEYWORDS = {
    "minimum": True,
    "maximum": False,
    "minLength": True,
    "maxLength": False,
    "minItems": True,
    "maxItems": False,
    "minProperties": True,
    "maxProperties": False,
}
_EXCLUSIVE_KEYWORDS = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
_COMPOSITION_KEYWORDS = ("allOf", "anyOf", "oneOf", "not")
# Pairs of types: the second accepts all values of the first.
_WIDENED_TYPES = {
    ("integer", "number"),
    ("integer", "int-or-string"),
    ("string", "int-or-string"),
    ("integer", "any"),
}
_WIDENED_FORMATS = {("int32", "int64"), ("float", "double")}
_NEW_VERSION_ADVICE = "do it in a new version of the kind with a conversion"


def compare_schemas(version: str, old: Schema, new: Schema) -> Iterator[BreakingChange]:
    """Find each field where ``new`` accepts less than ``old``."""
    yield from _compare_schema(_FieldLocation(version, ""), old, new)


@dataclass(frozen=True)
class _FieldLocation:
    version: str
    path: str

    def child(self, suffix: str) -> _FieldLocation:
        return _FieldLocation(self.version, self.path + suffix)

    def breaking_change(self, rule: BreakingChangeRule, message: str, fix: str) -> BreakingChange:
        return BreakingChange(version=self.version, field=self.path, rule=rule, message=message, fix=fix)


def _compare_schema(location: _FieldLocation, old: Schema, new: Schema) -> Iterator[BreakingChange]:
    before, after = _schema_type(old), _schema_type(new)
    if before != after and after != "any" and (before, after) not in _WIDENED_TYPES:
        yield location.breaking_change(
            "type-changed",
            f"the type changes from {before} to {after}: stored objects and clients use the old one",
            f"keep the type and add a field of the new one; or {_NEW_VERSION_ADVICE}",
        )
        return
    yield from _compare_values(location, old, new)
    yield from _compare_structure(location, old, new)
    yield from _compare_rules(location, old, new)
    yield from _compare_children(location, old, new)


def _schema_type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "map"
    return schema.get("type", "any")


def _compare_values(location: _FieldLocation, old: Schema, new: Schema) -> Iterator[BreakingChange]:
    yield from _compare_bounds(location, old, new)
    if removed := _describe_removed_values(old.get("enum"), new.get("enum")):
        yield location.breaking_change(
            "enum-narrowed", f"{removed}: objects with other values are rejected", "keep the old values"
        )
    before, after = old.get("pattern"), new.get("pattern")
    if after is not None and before != after:
        message = f"the pattern changes from {before} to {after}" if before else f"the pattern {after} is added"
        yield location.breaking_change(
            "pattern-changed", f"{message}: strings that do not match are rejected", _loosen_advice("the pattern")
        )
    before, after = old.get("format"), new.get("format")
    if after is not None and before != after and (before, after) not in _WIDENED_FORMATS:
        message = f"the format changes from {before} to {after}" if before else f"the format {after} is added"
        yield location.breaking_change(
            "format-changed", f"{message}: other values are rejected", _loosen_advice("the format")
        )
    if old.get("nullable") and not new.get("nullable"):
        yield location.breaking_change(
            "null-refused", "null is rejected, or becomes the default", "keep nullable=True"
        )
    yield from _compare_default(location, old, new)


def _loosen_advice(subject: str) -> str:
    return f"keep {subject}, or relax it; or {_NEW_VERSION_ADVICE}"


def _describe_removed_values(old: list[Any] | None, new: list[Any] | None) -> str:
    if new is None:
        return ""
    if old is None:
        return f"only {', '.join(map(str, new))} are accepted"
    removed = [value for value in old if value not in new]
    return (
        f"{', '.join(map(str, removed))} {'is' if len(removed) == 1 else 'are'} no longer accepted" if removed else ""
    )


def _compare_bounds(location: _FieldLocation, old: Schema, new: Schema) -> Iterator[BreakingChange]:
    for keyword, greater_is_narrower in _BOUND_KEYWORDS.items():
        before, after = old.get(keyword), new.get(keyword)
        if after is None:
            continue
        exclusive = _EXCLUSIVE_KEYWORDS.get(keyword, "")
        tighter = before is None or (after > before if greater_is_narrower else after < before)
        strict = before == after and bool(new.get(exclusive)) and not old.get(exclusive)
        if tighter or strict:
            message = (
                f"{keyword} changes from {before} to {after}" if before is not None else f"{keyword} {after} is added"
            )
            message = f"the value {after} of {keyword} is now rejected" if strict else message
            yield location.breaking_change(
                "bound-tightened", f"{message}: values outside are rejected", _loosen_advice("the bound")
            )
    before, after = old.get("multipleOf"), new.get("multipleOf")
    if after is not None and (before is None or before % after):
        yield location.breaking_change(
            "bound-tightened", f"only multiples of {after} are accepted", _loosen_advice("the bound")
        )


def _compare_default(location: _FieldLocation, old: Schema, new: Schema) -> Iterator[BreakingChange]:
    if old.get("default", _compare_default) == new.get("default", _compare_default):
        return
    if "default" not in new:
        message = f"the default {old['default']!r} is removed: an absent field stays absent"
    elif "default" not in old:
        message = f"the default {new['default']!r} is added: an absent field is set, in stored objects too"
    else:
        message = f"the default changes from {old['default']!r} to {new['default']!r}, also in stored objects"
    yield location.breaking_change("default-changed", message, f"keep the default; or {_NEW_VERSION_ADVICE}")


_MERGE_KEYWORDS: tuple[tuple[str, Any, BreakingChangeRule], ...] = (
    ("x-kubernetes-list-type", "atomic", "list-type-changed"),
    ("x-kubernetes-list-map-keys", [], "list-type-changed"),
    ("x-kubernetes-map-type", "granular", "map-type-changed"),
)


def _compare_structure(location: _FieldLocation, old: Schema, new: Schema) -> Iterator[BreakingChange]:
    for keyword, default, rule in _MERGE_KEYWORDS:
        before, after = old.get(keyword, default), new.get(keyword, default)
        if before != after:
            name = keyword.removeprefix("x-kubernetes-")
            message = (
                f"the {name} changes from {_format_value(before)} to {_format_value(after)}: field owners are lost"
            )
            yield location.breaking_change(
                rule, f"{message}, and duplicates are rejected", "keep it; or " + _NEW_VERSION_ADVICE
            )
    preserve_keyword = "x-kubernetes-preserve-unknown-fields"
    if old.get(preserve_keyword) and not new.get(preserve_keyword):
        message = "unknown fields are dropped from stored objects"
        yield location.breaking_change(
            "unknown-fields-dropped", message, "keep preserve_unknown=True, or declare the fields first"
        )
    if bool(old.get("x-kubernetes-embedded-resource")) < bool(new.get("x-kubernetes-embedded-resource")):
        message = "the value must be a whole object, with apiVersion, kind and metadata"
        yield location.breaking_change("type-changed", message, "remove embedded_resource; or " + _NEW_VERSION_ADVICE)


def _format_value(value: Any) -> str:
    return ", ".join(cast("list[str]", value)) or "none" if isinstance(value, list) else str(value)


def _compare_rules(location: _FieldLocation, old: Schema, new: Schema) -> Iterator[BreakingChange]:
    before = [_rule_identity(rule) for rule in old.get(RULES, ())]
    for rule in new.get(RULES, ()):
        if _rule_identity(rule) not in before:
            yield location.breaking_change(
                "rule-tightened",
                f"the rule {rule['rule']!r} is new or changed: objects that violate it are rejected",
                "let it hold for stored objects, such as by comparing with oldSelf; or " + _NEW_VERSION_ADVICE,
            )
    for keyword in _COMPOSITION_KEYWORDS:
        if keyword in new and new[keyword] != old.get(keyword):
            message = f"{keyword} changes: the comparison does not support this keyword"
            yield location.breaking_change(
                "validation-changed", message, "compare it manually; or " + _NEW_VERSION_ADVICE
            )


def _rule_identity(rule: Schema) -> tuple[str, bool]:
    return " ".join(rule["rule"].split()), bool(rule.get("optionalOldSelf"))


def _compare_children(location: _FieldLocation, old: Schema, new: Schema) -> Iterator[BreakingChange]:
    before: Schema = old.get("properties", {})
    after: Schema = new.get("properties", {})
    preserves_unknown = bool(new.get("x-kubernetes-preserve-unknown-fields"))
    for name, schema in before.items():
        inner = location.child(f".{name}")
        if name in after:
            yield from _compare_schema(inner, schema, after[name])
        elif not preserves_unknown:
            message = "the field is removed: it is dropped from stored objects, and manifests with it are rejected"
            yield inner.breaking_change(
                "field-removed",
                message,
                f"keep it, and name its replacement in the docstring; or {_NEW_VERSION_ADVICE}",
            )
    for name in new.get("required", ()):
        if name not in old.get("required", ()) and "default" not in after.get(name, {}):
            message = "the field becomes required: stored objects and manifests without it are rejected"
            yield location.child(f".{name}").breaking_change(
                "required-added", message, "declare a default, or make it X | None"
            )
    for keyword, suffix in (("items", "[*]"), ("additionalProperties", ".*")):
        if isinstance(old.get(keyword), dict) and isinstance(new.get(keyword), dict):
            yield from _compare_schema(location.child(suffix), old[keyword], new[keyword])
