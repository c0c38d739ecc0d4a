"""``breaking_changes``: changes between two definitions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from framework_support.crd_twins import TWINS
from steersman_manifests.crd import breaking_changes, definition

TEXT = {"type": "string"}
INT = {"type": "integer", "format": "int64"}


def crd(spec: dict[str, Any], **version: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "webapps.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "WebApp", "plural": "webapps", "shortNames": ["sh"]},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }


def field(schema: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return crd({"properties": {"a": schema}, **spec})


def broken_rules(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str]]:
    return [(c.field, c.rule) for c in breaking_changes(old, new)]


RULE = {"rule": "self > 1", "message": "a"}
LIST = {"type": "array", "items": {"type": "object", "properties": {"n": TEXT}, "required": ["n"]}}
KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"]}


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (TEXT, INT, "type-changed"),
        ({"type": "number"}, INT, "type-changed"),
        (INT, {"type": "number"}, None),
        (INT, {"x-kubernetes-int-or-string": True}, None),
        ({"x-kubernetes-int-or-string": True}, INT, "type-changed"),
        (
            {"type": "object", "additionalProperties": TEXT},
            {"type": "object", "properties": {"b": TEXT}},
            "type-changed",
        ),
        (TEXT, {**TEXT, "enum": ["a"]}, "enum-narrowed"),
        ({**TEXT, "enum": ["a", "b"]}, {**TEXT, "enum": ["a", "c"]}, "enum-narrowed"),
        ({**TEXT, "enum": ["a"]}, {**TEXT, "enum": ["a", "b"]}, None),
        ({**TEXT, "enum": ["a"]}, TEXT, None),
        (INT, {**INT, "minimum": 0}, "bound-tightened"),
        ({**INT, "minimum": 0}, {**INT, "minimum": 1}, "bound-tightened"),
        ({**INT, "minimum": 1}, {**INT, "minimum": 0}, None),
        ({**INT, "maximum": 9}, {**INT, "maximum": 8}, "bound-tightened"),
        ({**INT, "maximum": 9}, {**INT, "maximum": 9, "exclusiveMaximum": True}, "bound-tightened"),
        ({**INT, "maximum": 9, "exclusiveMaximum": True}, {**INT, "maximum": 9}, None),
        ({**INT, "maximum": 8}, INT, None),
        ({**INT, "multipleOf": 4}, {**INT, "multipleOf": 2}, None),
        ({**INT, "multipleOf": 4}, {**INT, "multipleOf": 3}, "bound-tightened"),
        (TEXT, {**TEXT, "maxLength": 9}, "bound-tightened"),
        (LIST, {**LIST, "maxItems": 9}, "bound-tightened"),
        ({**TEXT, "pattern": "^a$"}, {**TEXT, "pattern": "^b$"}, "pattern-changed"),
        (TEXT, {**TEXT, "pattern": "^b$"}, "pattern-changed"),
        ({**TEXT, "pattern": "^a$"}, TEXT, None),
        (TEXT, {**TEXT, "format": "uri"}, "format-changed"),
        ({"type": "integer", "format": "int32"}, INT, None),
        (INT, {"type": "integer", "format": "int32"}, "format-changed"),
        ({**TEXT, "nullable": True}, TEXT, "null-refused"),
        ({**TEXT, "default": "a"}, {**TEXT, "default": "b"}, "default-changed"),
        ({**TEXT, "default": "a"}, TEXT, "default-changed"),
        (TEXT, {**TEXT, "default": "a"}, "default-changed"),
        (LIST, {**LIST, **KEYED}, "list-type-changed"),
        ({**LIST, **KEYED}, LIST, "list-type-changed"),
        (LIST, {**LIST, "x-kubernetes-list-type": "atomic"}, None),
        ({"type": "object"}, {"type": "object", "x-kubernetes-map-type": "atomic"}, "map-type-changed"),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            {"type": "object"},
            "unknown-fields-dropped",
        ),
        (INT, {**INT, "x-kubernetes-validations": [RULE]}, "rule-tightened"),
        (
            {**INT, "x-kubernetes-validations": [RULE]},
            {**INT, "x-kubernetes-validations": [{**RULE, "rule": "self > 2"}]},
            "rule-tightened",
        ),
        (
            {**INT, "x-kubernetes-validations": [RULE]},
            {**INT, "x-kubernetes-validations": [{**RULE, "message": "b"}]},
            None,
        ),
        ({**INT, "x-kubernetes-validations": [RULE]}, INT, None),
        (INT, {**INT, "anyOf": [{"minimum": 3}]}, "validation-changed"),
        (INT, {**INT, "description": "Other words."}, None),
    ],
)
def test_crd_diff_of_field_reports_rule(old: dict[str, Any], new: dict[str, Any], rule: str | None) -> None:
    rules = {r for _, r in broken_rules(field(old), field(new))}
    assert rules == ({rule} if rule else set())
    for change in breaking_changes(field(old), field(new)):
        assert (change.version, change.field) == ("v1", ".spec.a")
        assert change.message and change.fix


def test_crd_diff_reports_removed_and_required_fields() -> None:
    both = crd({"properties": {"a": TEXT, "b": TEXT}})
    assert broken_rules(both, field(TEXT)) == [(".spec.b", "field-removed")]
    assert broken_rules(field(TEXT), both) == []
    kept = crd({"properties": {"a": TEXT}, "x-kubernetes-preserve-unknown-fields": True})
    assert broken_rules(both, kept) == []
    assert broken_rules(field(TEXT), field(TEXT, required=["a"])) == [(".spec.a", "required-added")]
    defaulted = crd({"properties": {"a": TEXT, "b": {**TEXT, "default": "x"}}, "required": ["b"]})
    assert broken_rules(field(TEXT), defaulted) == []


def test_crd_diff_checks_nested_schemas() -> None:
    def deep(leaf: dict[str, Any]) -> dict[str, Any]:
        items = {"type": "array", "items": {"type": "object", "additionalProperties": leaf}}
        return field({"type": "object", "properties": {"list": items}})

    assert broken_rules(deep(TEXT), deep(INT)) == [(".spec.a.list[*].*", "type-changed")]


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (("scope",), "Cluster", "scope-changed"),
        (("group",), "other.com", "group-changed"),
        (("names", "kind"), "Other", "name-changed"),
        (("names", "shortNames"), [], "name-changed"),
        (("versions", 0, "served"), False, "version-removed"),
        (("versions", 0, "name"), "v2", "version-removed"),
        (("versions", 0, "subresources"), {}, "subresource-removed"),
        (("versions", 0, "subresources", "scale", "specReplicasPath"), ".spec.b", "scale-path-changed"),
        (("versions", 0, "selectableFields"), [], "selectable-field-removed"),
    ],
)
def test_crd_diff_of_definition_reports_rule(path: tuple[Any, ...], value: Any, rule: str) -> None:
    scale = {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a"}
    old = crd({}, subresources={"scale": scale}, selectableFields=[{"jsonPath": ".spec.a"}])
    new = copy.deepcopy(old)
    inner = new["spec"]
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    assert {r for _, r in broken_rules(old, new)} == {rule}


def test_crd_diff_reports_removed_stored_version() -> None:
    old, new = crd({}), crd({}, name="v2")
    old["status"] = {"storedVersions": ["v1"]}
    (change,) = breaking_changes(old, new)
    assert change.rule == "stored-version-removed"
    assert "remove the old version from status.storedVersions" in change.fix


@pytest.mark.parametrize("plural", TWINS)
def test_crd_diff_of_equal_crds_is_empty(plural: str) -> None:
    manifest = definition(*TWINS[plural])
    assert breaking_changes(manifest, manifest) == ()
