"""What the exploration is made of: paths, values, states, drafts, replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from framework_support.harbour import Harbour, HarbourReconciler, HarbourStatus, setup, setup_with
from steersman.crd import definition
from steersman.manager import Manager
from steersman.meta import Condition, set_condition
from steersman_testing import run_virtual
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions import Budget, Hints, Report, Story, Unwell, explore, in_memory, normalised
from steersman_testing.transitions.changes import REFUSED, Change
from steersman_testing.transitions.drafts import Drafts
from steersman_testing.transitions.paths import get, parsed, shown, with_value
from steersman_testing.transitions.patterns import matching
from steersman_testing.transitions.plan import Plan
from steersman_testing.transitions.states import differences
from steersman_testing.transitions.subject import Subject
from steersman_testing.transitions.values import Value, Values

YEAR = 366 * 86400.0


def explored(operator: Callable[[Manager], None] = setup, hints: Hints | None = None, **more: Any) -> Report:
    return run_virtual(explore(Harbour, in_memory(Harbour, operator), hints, **more), limit=YEAR)


@pytest.mark.parametrize("text", ["spec", "spec.servers[0].port", 'spec.labels["example.com/a"]', 'spec["a.b"][2]'])
def test_paths_are_read_as_they_are_shown(text: str) -> None:
    path = parsed(text)
    assert shown(path) == text
    assert get(with_value({}, path[:1], {"kept": True}), path[:1]) == {"kept": True}


def test_what_is_no_path_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a path"):
        parsed("spec[")


def test_strings_for_a_pattern_match_it_and_repeat() -> None:
    found = matching("^[a-z]{3,5}-[0-9]$", 1)
    assert found
    assert found == matching("^[a-z]{3,5}-[0-9]$", 1)
    # A space only where there is no way without.
    assert all(" " not in text for text in found)
    assert all(len(text.split()) == 3 for text in matching("^[a-z]+( [0-9]+){2}$", 1))
    assert all(3 <= len(text.partition("-")[0]) <= 5 for text in found)


def test_patterns_are_read_as_the_server_reads_them() -> None:
    schema = {"type": "string", "pattern": r"^[[:lower:]]{2}(?i)x\z"}
    values = Values(1)
    texts = [v.value for v in values.good(schema) if v.label == ""][:2]
    assert len(texts) == 2
    assert all(len(t) == 3 and t[:2].islower() and t[2] in "xX" for t in texts), texts
    assert [v.label for v in values.bad(schema)] == ["wrong type", "against the pattern"]
    either = {"x-kubernetes-int-or-string": True, "pattern": r"^[[:digit:]]+Gi\z"}
    assert [v.value for v in values.good(either)] == ["1Gi", "2Gi", 1]


def test_what_is_called_good_is_taken_and_what_is_called_bad_refused() -> None:
    drafts = Drafts(Subject.of(Harbour), Hints(), 0)
    start = drafts.start()
    for prop in drafts.properties:
        taken = [v for v in drafts.good(prop) if drafts.sets(start, prop, v)]
        assert taken, prop.name
        refused = [v for v in drafts.breaking(prop) if drafts.refused(start, prop, v)]
        assert refused, prop.name


def test_the_way_back_is_by_a_new_object_where_a_rule_bars_it() -> None:
    drafts = Drafts(Subject.of(with_rule("self >= oldSelf")), Hints(), 0)
    small, large = {"spec": {"title": "a", "berths": 1}}, {"spec": {"title": "a", "berths": 5}}
    assert drafts.way_back(small, large) == Change("rollback")
    back = drafts.way_back(large, small)
    assert back.kind == "recreate"
    assert back.applied_to(large) == small


def with_rule(rule: str, **more: Any) -> Any:
    """The manifest of ``Harbour``, with a rule for ``spec.berths``."""
    manifest = definition(Harbour)
    spec: Any = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["berths"]["x-kubernetes-validations"] = [{"rule": rule, "message": "no", **more}]
    return manifest


ONLY_BY_UPDATE = with_rule("oldSelf.hasValue() || self == 1", optionalOldSelf=True)


def test_what_no_new_object_may_have_is_not_wanted() -> None:
    drafts = Drafts(Subject.of(ONLY_BY_UPDATE), Hints(), 0)
    (berths,) = [p for p in drafts.properties if p.name == "spec.berths"]
    start = drafts.start()
    assert drafts.admission.refusal(start, {"spec": {"title": "a", "berths": 2}}) is None
    assert drafts.sets(start, berths, Value(2)) is None
    assert drafts.sets(start, berths, Value(1)) is not None


def test_a_cluster_that_takes_no_such_new_object_is_told() -> None:
    replay = '{"start":{"spec":{"title":"a"}},"changes":[["alter",{"spec.berths":2}]]}'
    report = run_virtual(explore(Harbour, in_memory(ONLY_BY_UPDATE, setup), replay=replay), limit=YEAR)
    assert [f.oracle for f in report.failures] == ["refusal"]
    assert "refuses a new object" in report.failures[0].finding.text


def test_a_cluster_that_does_not_take_the_first_object_is_told() -> None:
    manifest = definition(Harbour)
    spec: Any = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["title"]["minLength"] = 2
    report = run_virtual(explore(Harbour, in_memory(manifest, setup)), limit=YEAR)
    assert [(f.oracle, f.story.changes) for f in report.failures] == [("refusal", ())]


def changes_of(plan: Plan, start: JsonObject, walk: int, count: int) -> list[Change]:
    """What a plan gives for objects of which each lives for ``walk`` changes."""
    given: list[Change] = []
    document = start
    for number in range(count):
        document = document if number % walk else start
        change = plan.next(document)
        assert change is not None
        given.append(change)
        document = document if change.kind in REFUSED else change.applied_to(document)
    return given


@pytest.mark.parametrize("walk", [2, 3, 5, 12])
def test_a_field_is_taken_away_although_a_walk_ends_between(walk: int) -> None:
    drafts = Drafts(Subject.of(Harbour), Hints(), 0)
    plan = Plan(drafts, 0)
    given = changes_of(plan, drafts.start(), walk, 120)
    optional = {p.name for p in drafts.properties if not p.required}
    assert {p for c in given if c.kind == "remove" for p in c.paths} == optional
    assert not [m for m in plan.coverage.missing() if m.startswith("remove")]


def test_what_could_not_be_done_in_a_walk_is_missing() -> None:
    drafts = Drafts(Subject.of(Harbour), Hints(), 0)
    plan = Plan(drafts, 0)
    given = changes_of(plan, drafts.start(), 1, 120)
    assert not [c for c in given if c.kind == "remove"]
    assert "remove spec.banner" in plan.coverage.missing()


def state(uid: str, **spec: Any) -> Any:
    metadata = {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": uid}
    status = {
        "since": f"2030-01-01T00:00:0{uid}Z",
        "conditions": [{"type": "Ready", "status": "True", "message": uid}],
    }
    return normalised(
        [{"apiVersion": "v1", "kind": "Claim", "metadata": metadata, "spec": {"own": uid, **spec}, "status": status}],
        "n",
    )


def test_states_are_alike_but_for_what_was_wanted() -> None:
    assert list(differences(state("1"), state("2"))) == []
    same = differences(state("1", requests={"storage": "1Gi"}), state("2", requests={"storage": "1024Mi"}))
    assert list(same) == []
    unlike = differences(state("1", size="1Gi"), state("2", size="1024Mi"))
    assert [str(d) for d in unlike] == ['Claim (namespace)/a spec.size: "1Gi" / "1024Mi"']


def test_generated_names_are_told_by_what_they_are_of_and_not_by_chance() -> None:
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

    one, other = normalised(maps("part-bbbbb", "part-ccccc")), normalised(maps("part-ccccc", "part-bbbbb"))
    assert list(differences(one, other)) == []
    assert "part-bbbbb" not in str(one)


def test_the_name_of_what_is_gone_is_told() -> None:
    def world(name: str) -> Any:
        about = {"name": "about", "namespace": "n", "uid": "about"}
        told = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"last": name, name: "done"}}
        return normalised([told], generated={name: "job-"})

    assert world("job-aaaaa") == world("job-bbbbb")


def test_fields_that_are_told_alike_are_all_compared() -> None:
    def world(one: str, two: str) -> Any:
        about = {"name": "about", "namespace": "n", "uid": "about"}
        data = {"job-aaaaa": one, "job-bbbbb": two}
        told = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
        return normalised([told], generated={"job-aaaaa": "job-", "job-bbbbb": "job-"})

    assert world("1", "2") == world("2", "1")
    assert world("1", "1") != world("1", "2")


def test_kinds_are_left_out_by_their_group() -> None:
    def lease(version: str) -> JsonObject:
        return {"apiVersion": version, "kind": "Lease", "metadata": {"name": "a", "namespace": "n", "uid": version}}

    assert list(normalised([lease("coordination.k8s.io/v1"), lease("rent.example.com/v1")])) == ["Lease n/a"]


def test_a_replay_that_is_none_is_refused() -> None:
    for text in ("", "{}", '{"start":{},"changes":[["nonsense"]]}'):
        with pytest.raises(ValueError, match="is not a replay"):
            Story.of(text)


def test_a_hint_for_no_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Harbour has no field spec\.titel"):
        explored(hints=Hints(leave=["spec.titel"]))


def test_fields_are_left_alone() -> None:
    report = explored(hints=Hints(leave=["spec.lanterns", "spec.labels"]), budget=Budget(changes=8))
    assert report.coverage.count("alter")[1] == 6
    assert not [m for m in report.coverage.missing() if "lanterns" in m]


def test_a_sick_first_object_is_told() -> None:
    class NeverReady(HarbourReconciler):
        async def report(self, harbour: Harbour, status: Any, reason: str, message: str) -> None:
            await super().report(harbour, "False", "Silted", "dredge it")

    with pytest.raises(Unwell, match="Ready is False: Silted: dredge it"):
        explored(setup_with(NeverReady))


class HalfDry(HarbourReconciler):
    """Reports a second condition, which does not tell whether all is well."""

    async def report(self, harbour: Harbour, status: Any, reason: str, message: str) -> None:
        ready = Condition(type="Ready", status=status, reason=reason, message=message)
        full = Condition(type="Available", status="False", reason="Full", message="no berth is free")
        conditions = harbour.status.conditions if harbour.status else ()
        for condition in (ready, full):
            conditions = set_condition(conditions, condition, self.runtime.clock.now())
        wanted = HarbourStatus(observed_generation=harbour.metadata.generation, conditions=conditions)
        await self.client.apply_status(harbour, wanted)


def test_conditions_that_do_not_tell_make_no_object_sick() -> None:
    with pytest.raises(Unwell, match="Available is False"):
        explored(setup_with(HalfDry))
    explored(setup_with(HalfDry), Hints(conditions=["Ready"]), budget=Budget(changes=20)).check()


def test_time_ends_it() -> None:
    report = explored(budget=Budget(seconds=0.0))
    assert (report.changes, report.failures) == (0, ())
