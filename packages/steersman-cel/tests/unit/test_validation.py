"""``steersman_cel.validation``: rules of schemas, evaluated on values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from steersman_cel.engine import Program
from steersman_cel.validation import find_default_violations, find_violations, has_rules, items_by_key, list_item_key
from steersman_cel.values import MISSING


def ruled(rule: str, *, schema: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    base = schema or {"type": "integer"}
    return {**base, "x-kubernetes-validations": [{"rule": rule, "message": "bad", **options}]}


POSITIVE = ruled("self > 0")
ITEMS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string", "default": "main"}, "size": ruled("self >= oldSelf")},
    },
}
POSITIVE_FIELDS: dict[str, Any] = {"type": "object", "properties": {"a": POSITIVE}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (POSITIVE, True),
        ({"type": "object", "properties": {"a": POSITIVE}}, True),
        ({"type": "array", "items": POSITIVE}, True),
        ({"anyOf": [POSITIVE]}, True),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, False),
        ({"x-kubernetes-validations": []}, False),
    ],
)
def test_has_rules_searches_all_levels(schema: dict[str, Any], expected: bool) -> None:
    assert has_rules(schema) is expected


@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        (POSITIVE, 0, "root"),
        ({"type": "object", "properties": {"a": POSITIVE}}, {"a": 0}, "root.a"),
        ({"type": "array", "items": POSITIVE}, [1, 0], "root[1]"),
        ({"type": "object", "additionalProperties": POSITIVE}, {"k": 0}, "root[k]"),
    ],
)
def test_find_violations_reports_path(schema: dict[str, Any], value: Any, path: str) -> None:
    (found,) = find_violations(value, MISSING, schema, path="root")
    assert (found.path, found.value, found.message, found.error) == (path, 0, "bad", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"message": " no "}, "no"),
        ({"message": ""}, "failed rule: self > 0"),
        ({"messageExpression": "'got %d'.format([self])"}, "got 0"),
        ({"messageExpression": "string(1 / self)"}, "bad"),
        ({"messageExpression": "'a\\nb'"}, "bad"),
    ],
)
def test_find_violations_returns_message(options: dict[str, Any], message: str) -> None:
    (found,) = find_violations(0, MISSING, ruled("self > 0", **options))
    assert found.message == message


def test_find_violations_reports_evaluation_errors() -> None:
    (found,) = find_violations(0, MISSING, ruled("1 / self > 0"))
    assert (found.message, found.error) == ("", "division by zero")


@pytest.mark.parametrize(
    ("old", "ratcheting", "violations"), [(0, True, 0), (0, False, 1), (1, True, 1), (MISSING, True, 1)]
)
def test_find_violations_ratchets_unchanged_values(old: Any, ratcheting: bool, violations: int) -> None:
    assert len(list(find_violations(0, old, POSITIVE, ratcheting=ratcheting))) == violations


@pytest.mark.parametrize(("old", "violations"), [(MISSING, 0), (1, 0), (3, 1)])
def test_find_violations_transition_rule_needs_old_value(old: Any, violations: int) -> None:
    assert len(list(find_violations(2, old, ruled("self >= oldSelf")))) == violations


def test_find_violations_compares_list_items_by_key() -> None:
    old = [{"name": "a", "size": 1}, {"name": "b", "size": 5}]
    new = [{"name": "b", "size": 4}, {"name": "a", "size": 2}]
    assert [v.path for v in find_violations(new, old, ITEMS)] == ["[0].size"]


NAMED: dict[str, Any] = {
    "type": "object",
    "properties": {"spec": POSITIVE_FIELDS, "status": POSITIVE_FIELDS},
    "x-kubernetes-validations": [{"rule": "self.spec.a < 9 || self.metadata.name == 'a'"}],
}


def widget(name: str = "b", version: str = "1", spec: int = 1, status: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": version}
    return {"apiVersion": "v1", "kind": "Widget", "metadata": metadata, "spec": {"a": spec}, "status": {"a": status}}


@pytest.mark.parametrize(
    ("new", "paths"),
    [
        (widget(), []),
        (widget(spec=0), ["spec.a"]),
        (widget(status=0), ["status.a"]),
        (widget(spec=9), [""]),
        (widget(spec=9, name="a"), []),
        (widget(spec=2**70), ["", "spec.a"]),
    ],
)
def test_find_violations_after_conforming_object_finds_all(new: dict[str, Any], paths: list[str]) -> None:
    for old, value in ((MISSING, widget()), (widget(), widget(version="2")), (widget(), new), (widget(), new)):
        found = [v.path for v in find_violations(value, old, NAMED, root=True)]
        assert found == (paths if value is new else [])


def test_find_violations_equal_values_evaluates_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []
    evaluate = Program.evaluate

    def count(program: Program, variables: Mapping[str, Any]) -> Any:
        evaluated.append("")
        return evaluate(program, variables)

    monkeypatch.setattr(Program, "evaluate", count)
    schema = {**NAMED, "description": "of this test"}
    assert list(find_violations(widget(), MISSING, schema, root=True)) == []
    assert len(evaluated) == 3
    assert list(find_violations(widget(version="2", status=2), MISSING, schema, root=True)) == []
    assert len(evaluated) == 4, "only the rule of the changed status"


@pytest.mark.parametrize(("default", "violations"), [(1, 0), (0, 1)])
def test_find_default_violations_checks_default(default: int, violations: int) -> None:
    assert len(find_default_violations(default, POSITIVE)) == violations


def test_list_item_key_uses_defaults_of_keys() -> None:
    assert list_item_key({"name": "a"}, ITEMS) == ("a",)
    assert list_item_key({}, ITEMS) == ("main",)
    assert list_item_key("a", ITEMS) is None


def test_items_by_key_first_duplicate_wins() -> None:
    items = [{"name": "a", "size": 1}, {"name": "a", "size": 2}]
    assert items_by_key(items, ITEMS) == {("a",): items[0]}
    assert items_by_key(items, {"type": "array"}) == {}
