"""Parts of the exploration: paths, values, states, drafts and replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from framework_support.webapp import WebApp, WebAppReconciler, WebAppStatus, setup, setup_with
from steersman.manager import Manager
from steersman.meta import Condition, set_condition
from steersman_manifests.crd import definition
from steersman_testing import run_virtual
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions import (
    Budget,
    ChangeSequence,
    ExplorationReport,
    Hints,
    UnhealthyStart,
    explore,
    in_memory,
    normalize_state,
)
from steersman_testing.transitions.document_paths import format_path, get_value, parse_path, with_value
from steersman_testing.transitions.exploration_plan import ExplorationPlan
from steersman_testing.transitions.input_model import InputModel
from steersman_testing.transitions.kind_under_test import KindUnderTest
from steersman_testing.transitions.observed_state import differences
from steersman_testing.transitions.pattern_strings import strings_matching
from steersman_testing.transitions.spec_changes import REJECTED_KINDS, SpecChange
from steersman_testing.transitions.value_generator import CandidateValue, ValueGenerator

YEAR = 366 * 86400.0


def run_exploration(
    operator: Callable[[Manager], None] = setup, hints: Hints | None = None, **more: Any
) -> ExplorationReport:
    return run_virtual(explore(WebApp, in_memory(WebApp, operator), hints, **more), limit=YEAR)


@pytest.mark.parametrize("text", ["spec", "spec.servers[0].port", 'spec.labels["example.com/a"]', 'spec["a.b"][2]'])
def test_path_parses_its_own_text(text: str) -> None:
    path = parse_path(text)
    assert format_path(path) == text
    assert get_value(with_value({}, path[:1], {"kept": True}), path[:1]) == {"kept": True}


def test_path_invalid_text_raises() -> None:
    with pytest.raises(ValueError, match="is not a path"):
        parse_path("spec[")


def test_generated_strings_match_pattern() -> None:
    found = strings_matching("^[a-z]{3,5}-[0-9]$", 1)
    assert found
    assert found == strings_matching("^[a-z]{3,5}-[0-9]$", 1)
    # Generated strings have spaces only if the pattern requires them.
    assert all(" " not in text for text in found)
    assert all(len(text.split()) == 3 for text in strings_matching("^[a-z]+( [0-9]+){2}$", 1))
    assert all(3 <= len(text.partition("-")[0]) <= 5 for text in found)


def test_patterns_use_re2_syntax() -> None:
    schema = {"type": "string", "pattern": r"^[[:lower:]]{2}(?i)x\z"}
    values = ValueGenerator(1)
    texts = [v.value for v in values.valid(schema) if v.label == ""][:2]
    assert len(texts) == 2
    assert all(len(t) == 3 and t[:2].islower() and t[2] in "xX" for t in texts), texts
    assert [v.label for v in values.invalid(schema)] == ["wrong type", "against the pattern"]
    either = {"x-kubernetes-int-or-string": True, "pattern": r"^[[:digit:]]+Gi\z"}
    assert [v.value for v in values.valid(either)] == ["1Gi", "2Gi", 1]


def test_valid_values_are_accepted_invalid_rejected() -> None:
    model = InputModel(KindUnderTest.from_kind(WebApp), Hints(), 0)
    start = model.initial_document()
    for prop in model.properties:
        taken = [v for v in model.valid_values(prop) if model.set_value(start, prop, v)]
        assert taken, prop.name
        refused = [v for v in model.invalid_values(prop) if model.invalid_change(start, prop, v)]
        assert refused, prop.name


def test_forbidden_reverse_change_recreates_object() -> None:
    model = InputModel(KindUnderTest.from_kind(with_rule("self >= oldSelf")), Hints(), 0)
    small, large = {"spec": {"title": "a", "replicas": 1}}, {"spec": {"title": "a", "replicas": 5}}
    assert model.rollback_change(small, large) == SpecChange("rollback")
    back = model.rollback_change(large, small)
    assert back.kind == "recreate"
    assert back.apply_to(large) == small


def with_rule(rule: str, **more: Any) -> Any:
    """Return the manifest of ``WebApp`` with a rule for ``spec.replicas``."""
    manifest = definition(WebApp)
    spec: Any = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["replicas"]["x-kubernetes-validations"] = [{"rule": rule, "message": "no", **more}]
    return manifest


UPDATE_ONLY_CRD = with_rule("oldSelf.hasValue() || self == 1", optionalOldSelf=True)


def test_values_forbidden_on_create_are_not_drafted() -> None:
    model = InputModel(KindUnderTest.from_kind(UPDATE_ONLY_CRD), Hints(), 0)
    (replicas,) = [p for p in model.properties if p.name == "spec.replicas"]
    start = model.initial_document()
    assert model.admission.rejection(start, {"spec": {"title": "a", "replicas": 2}}) is None
    assert model.set_value(start, replicas, CandidateValue(2)) is None
    assert model.set_value(start, replicas, CandidateValue(1)) is not None


def test_refused_new_object_is_reported() -> None:
    replay = '{"start":{"spec":{"title":"a"}},"changes":[["alter",{"spec.replicas":2}]]}'
    report = run_virtual(explore(WebApp, in_memory(UPDATE_ONLY_CRD, setup), replay=replay), limit=YEAR)
    assert [f.oracle for f in report.failures] == ["refusal"]
    assert "rejects a new object" in report.failures[0].finding.text


def test_refused_first_object_is_reported() -> None:
    manifest = definition(WebApp)
    spec: Any = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["title"]["minLength"] = 2
    report = run_virtual(explore(WebApp, in_memory(manifest, setup)), limit=YEAR)
    assert [(f.oracle, f.sequence.changes) for f in report.failures] == [("refusal", ())]


def changes_in_trial(plan: ExplorationPlan, start: JsonObject, trial: int, count: int) -> list[SpecChange]:
    """Return the changes of a plan. Each object lives for ``trial`` changes."""
    given: list[SpecChange] = []
    document = start
    for number in range(count):
        document = document if number % trial else start
        change = plan.next(document)
        assert change is not None
        given.append(change)
        document = document if change.kind in REJECTED_KINDS else change.apply_to(document)
    return given


@pytest.mark.parametrize("trial", [2, 3, 5, 12])
def test_removal_is_planned_across_walks(trial: int) -> None:
    model = InputModel(KindUnderTest.from_kind(WebApp), Hints(), 0)
    plan = ExplorationPlan(model, 0)
    given = changes_in_trial(plan, model.initial_document(), trial, 120)
    optional = {p.name for p in model.properties if not p.required}
    assert {p for c in given if c.kind == "remove" for p in c.paths} == optional
    assert not [m for m in plan.coverage.missing() if m.startswith("remove")]


def test_skipped_change_is_missing_from_coverage() -> None:
    model = InputModel(KindUnderTest.from_kind(WebApp), Hints(), 0)
    plan = ExplorationPlan(model, 0)
    given = changes_in_trial(plan, model.initial_document(), 1, 120)
    assert not [c for c in given if c.kind == "remove"]
    assert "remove spec.banner" in plan.coverage.missing()


def state(uid: str, **spec: Any) -> Any:
    metadata = {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": uid}
    status = {
        "since": f"2030-01-01T00:00:0{uid}Z",
        "conditions": [{"type": "Ready", "status": "True", "message": uid}],
    }
    return normalize_state(
        [{"apiVersion": "v1", "kind": "Claim", "metadata": metadata, "spec": {"own": uid, **spec}, "status": status}],
        "n",
    )


def test_states_differ_only_in_declared_values() -> None:
    assert list(differences(state("1"), state("2"))) == []
    same = differences(state("1", requests={"storage": "1Gi"}), state("2", requests={"storage": "1024Mi"}))
    assert list(same) == []
    unlike = differences(state("1", size="1Gi"), state("2", size="1024Mi"))
    assert [str(d) for d in unlike] == ['Claim (namespace)/a spec.size: "1Gi" / "1024Mi"']


def test_order_of_owners_is_no_difference() -> None:
    owners = [{"apiVersion": "v1", "kind": kind, "name": "a", "uid": kind} for kind in ("Claim", "Widget")]

    def owned(references: list[dict[str, str]]) -> Any:
        metadata = {"name": "s", "namespace": "n", "uid": "s", "ownerReferences": references}
        return normalize_state([{"apiVersion": "v1", "kind": "Secret", "metadata": metadata}], "n")

    assert list(differences(owned(owners), owned(owners[::-1]))) == []
    assert list(differences(owned(owners), owned(owners[:1]))) != []


def test_generated_names_are_numbered_by_content() -> None:
    def maps(*names: str) -> list[JsonObject]:
        made = [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"generateName": "part-", "name": name, "namespace": "n", "uid": name},
                "data": {"number": str(number)},
            }
            for number, name in enumerate(names)
        ]
        list_of_them = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "all"},
            "data": dict.fromkeys(names),
        }
        return sorted([*made, list_of_them], key=lambda o: o["metadata"]["name"])

    one, other = normalize_state(maps("part-bbbbb", "part-ccccc")), normalize_state(maps("part-ccccc", "part-bbbbb"))
    assert list(differences(one, other)) == []
    assert "part-bbbbb" not in str(one)


def test_generated_name_of_deleted_object_is_normalized() -> None:
    def world(name: str) -> Any:
        about = {"name": "about", "namespace": "n", "uid": "about"}
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": about,
            "data": {"last": name, name: "done"},
        }
        return normalize_state([config_map], generated={name: "job-"})

    assert world("job-aaaaa") == world("job-bbbbb")


def test_equal_normalized_fields_are_all_compared() -> None:
    def world(one: str, two: str) -> Any:
        about = {"name": "about", "namespace": "n", "uid": "about"}
        data = {"job-aaaaa": one, "job-bbbbb": two}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
        return normalize_state([config_map], generated={"job-aaaaa": "job-", "job-bbbbb": "job-"})

    assert world("1", "2") == world("2", "1")
    assert world("1", "1") != world("1", "2")


def test_snapshot_excludes_kinds_by_group() -> None:
    def lease(version: str) -> JsonObject:
        return {"apiVersion": version, "kind": "Lease", "metadata": {"name": "a", "namespace": "n", "uid": version}}

    assert list(normalize_state([lease("coordination.k8s.io/v1"), lease("rent.example.com/v1")])) == ["Lease n/a"]


def test_replay_invalid_text_raises() -> None:
    for text in ("", "{}", '{"start":{},"changes":[["nonsense"]]}'):
        with pytest.raises(ValueError, match="is not a replay"):
            ChangeSequence.from_replay(text)


def test_a_hint_for_no_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"WebApp has no field spec\.titel"):
        run_exploration(hints=Hints(exclude=["spec.titel"]))


def test_excluded_fields_are_not_changed() -> None:
    report = run_exploration(hints=Hints(exclude=["spec.backends", "spec.labels"]), budget=Budget(changes=8))
    assert report.coverage.count("alter")[1] == 6
    assert not [m for m in report.coverage.missing() if "backends" in m]


def test_unhealthy_first_object_is_reported() -> None:
    class NeverReady(WebAppReconciler):
        async def write_status(self, webapp: WebApp, status: Any, reason: str, message: str) -> None:
            await super().write_status(webapp, "False", "NotReady", "correct the spec")

    with pytest.raises(UnhealthyStart, match="Ready is False: NotReady: correct the spec"):
        run_exploration(setup_with(NeverReady))


class ReportsPartialConditions(WebAppReconciler):
    """Reports a second condition that does not summarize the state."""

    async def write_status(self, webapp: WebApp, status: Any, reason: str, message: str) -> None:
        ready = Condition(type="Ready", status=status, reason=reason, message=message)
        full = Condition(type="Available", status="False", reason="Full", message="no berth is free")
        conditions = webapp.status.conditions if webapp.status else ()
        for condition in (ready, full):
            conditions = set_condition(conditions, condition, self.runtime.clock.now())
        wanted = WebAppStatus(observed_generation=webapp.metadata.generation, conditions=conditions)
        await self.client.apply_status(webapp, wanted)


def test_ignored_conditions_do_not_mark_unhealthy() -> None:
    with pytest.raises(UnhealthyStart, match="Available is False"):
        run_exploration(setup_with(ReportsPartialConditions))
    run_exploration(
        setup_with(ReportsPartialConditions), Hints(conditions=["Ready"]), budget=Budget(changes=20)
    ).check()


def test_time_budget_ends_exploration() -> None:
    report = run_exploration(budget=Budget(seconds=0.0))
    assert (report.changes, report.failures) == (0, ())
