"""Whether a new schema refuses or loses what the old one let in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from steersman.crd.change import Change, ChangeRule
from steersman.crd.rules import RULES, Schema

# The keyword, and whether a greater value lets in less.
_BOUNDS = {
    "minimum": True,
    "maximum": False,
    "minLength": True,
    "maxLength": False,
    "minItems": True,
    "maxItems": False,
    "minProperties": True,
    "maxProperties": False,
}
_EXCLUSIVE = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}
_NESTED = ("allOf", "anyOf", "oneOf", "not")
# A new type that lets in all that the old one did.
_WIDER = {("integer", "number"), ("integer", "int-or-string"), ("string", "int-or-string"), ("integer", "any")}
_WIDER_FORMATS = {("int32", "int64"), ("float", "double")}
_NEW_VERSION = "do it in a new version of the kind, and convert"


def narrowed(version: str, old: Schema, new: Schema) -> Iterator[Change]:
    """Every place at which ``new`` is narrower than ``old``."""
    yield from _compare(_Place(version, ""), old, new)


@dataclass(frozen=True)
class _Place:
    version: str
    path: str

    def within(self, part: str) -> _Place:
        return _Place(self.version, self.path + part)

    def change(self, rule: ChangeRule, message: str, fix: str) -> Change:
        return Change(version=self.version, field=self.path, rule=rule, message=message, fix=fix)


def _compare(place: _Place, old: Schema, new: Schema) -> Iterator[Change]:
    before, after = _kind(old), _kind(new)
    if before != after and after != "any" and (before, after) not in _WIDER:
        yield place.change(
            "type-changed",
            f"the type changes from {before} to {after}: stored objects and clients have the old one",
            f"keep the type and add a field of the new one; or {_NEW_VERSION}",
        )
        return
    yield from _values(place, old, new)
    yield from _structure(place, old, new)
    yield from _rules(place, old, new)
    yield from _below(place, old, new)


def _kind(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "int-or-string"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "map"
    return schema.get("type", "any")


def _values(place: _Place, old: Schema, new: Schema) -> Iterator[Change]:
    yield from _bounds(place, old, new)
    if gone := _gone(old.get("enum"), new.get("enum")):
        yield place.change("enum-narrowed", f"{gone}: objects that have others are refused", "keep the former values")
    before, after = old.get("pattern"), new.get("pattern")
    if after is not None and before != after:
        told = f"the pattern changes from {before} to {after}" if before else f"the pattern {after} comes"
        yield place.change("pattern-changed", f"{told}: texts that do not match are refused", _loosen("the pattern"))
    before, after = old.get("format"), new.get("format")
    if after is not None and before != after and (before, after) not in _WIDER_FORMATS:
        told = f"the format changes from {before} to {after}" if before else f"the format {after} comes"
        yield place.change("format-changed", f"{told}: other values are refused", _loosen("the format"))
    if old.get("nullable") and not new.get("nullable"):
        yield place.change("null-refused", "null is refused, or becomes the default", "keep nullable=True")
    yield from _default(place, old, new)


def _loosen(what: str) -> str:
    return f"keep {what} as it was, or let in more; or {_NEW_VERSION}"


def _gone(old: list[Any] | None, new: list[Any] | None) -> str:
    if new is None:
        return ""
    if old is None:
        return f"only {', '.join(map(str, new))} are let in"
    missing = [value for value in old if value not in new]
    return (
        f"{', '.join(map(str, missing))} {'is' if len(missing) == 1 else 'are'} not let in any more"
        if missing
        else ""
    )


def _bounds(place: _Place, old: Schema, new: Schema) -> Iterator[Change]:
    for keyword, greater_is_narrower in _BOUNDS.items():
        before, after = old.get(keyword), new.get(keyword)
        if after is None:
            continue
        exclusive = _EXCLUSIVE.get(keyword, "")
        tighter = before is None or (after > before if greater_is_narrower else after < before)
        strict = before == after and bool(new.get(exclusive)) and not old.get(exclusive)
        if tighter or strict:
            told = f"{keyword} changes from {before} to {after}" if before is not None else f"{keyword} {after} comes"
            told = f"{keyword} {after} is itself refused" if strict else told
            yield place.change("bound-tightened", f"{told}: values beyond are refused", _loosen("the bound"))
    before, after = old.get("multipleOf"), new.get("multipleOf")
    if after is not None and (before is None or before % after):
        yield place.change("bound-tightened", f"only multiples of {after} are let in", _loosen("the bound"))


def _default(place: _Place, old: Schema, new: Schema) -> Iterator[Change]:
    if old.get("default", _default) == new.get("default", _default):
        return
    if "default" not in new:
        told = f"the default {old['default']!r} goes: where the field is absent, nothing is filled in any more"
    elif "default" not in old:
        told = (
            f"the default {new['default']!r} comes: where the field is absent, it is filled in, in stored objects too"
        )
    else:
        told = (
            f"the default changes from {old['default']!r} to {new['default']!r}, for stored objects that lack it too"
        )
    yield place.change("default-changed", told, f"keep the default; or {_NEW_VERSION}")


_OWNERSHIP: tuple[tuple[str, Any, ChangeRule], ...] = (
    ("x-kubernetes-list-type", "atomic", "list-type-changed"),
    ("x-kubernetes-list-map-keys", [], "list-type-changed"),
    ("x-kubernetes-map-type", "granular", "map-type-changed"),
)


def _structure(place: _Place, old: Schema, new: Schema) -> Iterator[Change]:
    for keyword, usual, rule in _OWNERSHIP:
        before, after = old.get(keyword, usual), new.get(keyword, usual)
        if before != after:
            name = keyword.removeprefix("x-kubernetes-")
            message = f"the {name} changes from {_told(before)} to {_told(after)}: owners of fields are lost"
            yield place.change(rule, f"{message}, and duplicates are refused", "keep it; or " + _NEW_VERSION)
    keeps = "x-kubernetes-preserve-unknown-fields"
    if old.get(keeps) and not new.get(keeps):
        message = "fields that the schema does not know are dropped from stored objects"
        yield place.change(
            "unknown-fields-dropped", message, "keep preserve_unknown=True, or declare the fields first"
        )
    if bool(old.get("x-kubernetes-embedded-resource")) < bool(new.get("x-kubernetes-embedded-resource")):
        message = "the value must be a whole object, with apiVersion, kind and metadata"
        yield place.change("type-changed", message, "take embedded_resource away; or " + _NEW_VERSION)


def _told(value: Any) -> str:
    return ", ".join(cast("list[str]", value)) or "none" if isinstance(value, list) else str(value)


def _rules(place: _Place, old: Schema, new: Schema) -> Iterator[Change]:
    before = [_identity(rule) for rule in old.get(RULES, ())]
    for rule in new.get(RULES, ()):
        if _identity(rule) not in before:
            yield place.change(
                "rule-tightened",
                f"the rule {rule['rule']!r} is new or changed: objects for which it does not hold are refused",
                "let it hold for what is stored already, such as by comparing with oldSelf; or " + _NEW_VERSION,
            )
    for keyword in _NESTED:
        if keyword in new and new[keyword] != old.get(keyword):
            message = f"{keyword} changes: whether it lets in less cannot be told"
            yield place.change("validation-changed", message, "compare by hand; or " + _NEW_VERSION)


def _identity(rule: Schema) -> tuple[str, bool]:
    return " ".join(rule["rule"].split()), bool(rule.get("optionalOldSelf"))


def _below(place: _Place, old: Schema, new: Schema) -> Iterator[Change]:
    before: Schema = old.get("properties", {})
    after: Schema = new.get("properties", {})
    keeps = bool(new.get("x-kubernetes-preserve-unknown-fields"))
    for name, schema in before.items():
        inner = place.within(f".{name}")
        if name in after:
            yield from _compare(inner, schema, after[name])
        elif not keeps:
            message = "the field goes: it is dropped from stored objects, and manifests with it are refused"
            yield inner.change(
                "field-removed", message, f"keep it, and say in its docstring what to use; or {_NEW_VERSION}"
            )
    for name in new.get("required", ()):
        if name not in old.get("required", ()) and "default" not in after.get(name, {}):
            message = "the field must be set: stored objects and manifests without it are refused"
            yield place.within(f".{name}").change("required-added", message, "give it a default, or make it X | None")
    for keyword, part in (("items", "[*]"), ("additionalProperties", ".*")):
        if isinstance(old.get(keyword), dict) and isinstance(new.get(keyword), dict):
            yield from _compare(place.within(part), old[keyword], new[keyword])
