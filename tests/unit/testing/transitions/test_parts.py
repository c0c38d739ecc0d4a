"""What the exploration is made of: paths, values, states, drafts, replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harbour import Harbour, HarbourReconciler, setup, setup_with
from steersman.crd import definition
from steersman.manager import Manager
from steersman.testing import run_virtual
from steersman.testing.transitions import Budget, Hints, Report, Story, Unwell, explore, in_memory, normalised
from steersman.testing.transitions.changes import Change
from steersman.testing.transitions.drafts import Drafts
from steersman.testing.transitions.paths import get, parsed, shown, with_value
from steersman.testing.transitions.patterns import matching
from steersman.testing.transitions.states import differences
from steersman.testing.transitions.subject import Subject

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
    assert all(3 <= len(text.partition("-")[0]) <= 5 for text in found)


def test_what_is_called_good_is_taken_and_what_is_called_bad_refused() -> None:
    drafts = Drafts(Subject.of(Harbour), Hints(), 0)
    start = drafts.start()
    for prop in drafts.properties:
        taken = [v for v in drafts.good(prop) if drafts.sets(start, prop, v)]
        assert taken, prop.name
        refused = [v for v in drafts.breaking(prop) if drafts.refused(start, prop, v)]
        assert refused, prop.name


def test_the_way_back_is_by_a_new_object_where_a_rule_bars_it() -> None:
    manifest = definition(Harbour)
    spec: Any = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["berths"]["x-kubernetes-validations"] = [{"rule": "self >= oldSelf", "message": "never fewer"}]
    drafts = Drafts(Subject.of(manifest), Hints(), 0)
    small, large = {"spec": {"title": "a", "berths": 1}}, {"spec": {"title": "a", "berths": 5}}
    assert drafts.way_back(small, large) == Change("rollback")
    back = drafts.way_back(large, small)
    assert back.kind == "recreate"
    assert back.applied_to(large) == small


def state(uid: str, **spec: Any) -> Any:
    metadata = {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": uid}
    status = {
        "since": f"2030-01-01T00:00:0{uid}Z",
        "conditions": [{"type": "Ready", "status": "True", "message": uid}],
    }
    return normalised([{"kind": "Claim", "metadata": metadata, "spec": {"own": uid, **spec}, "status": status}], "n")


def test_states_are_alike_but_for_what_was_wanted() -> None:
    assert list(differences(state("1"), state("2"))) == []
    same = differences(state("1", requests={"storage": "1Gi"}), state("2", requests={"storage": "1024Mi"}))
    assert list(same) == []
    unlike = differences(state("1", size="1Gi"), state("2", size="1024Mi"))
    assert [str(d) for d in unlike] == ['Claim (namespace)/a spec.size: "1Gi" / "1024Mi"']


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


def test_time_ends_it() -> None:
    report = explored(budget=Budget(seconds=0.0))
    assert (report.changes, report.failures) == (0, ())
