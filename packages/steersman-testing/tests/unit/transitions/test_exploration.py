"""Each oracle finds the operator that is wrong in its way, tells it briefly, and spares the one that is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from framework_support import harbour
from framework_support.harbour import Harbour, setup, setup_with
from steersman.crd import definition
from steersman.manager import Manager
from steersman_testing import run_virtual
from steersman_testing.transitions import (
    Budget,
    Failure,
    Hints,
    Patience,
    Report,
    TransitionFailed,
    explore,
    in_memory,
)

HINTS = Hints(bad={"spec.image": [harbour.GONE]})
YEAR = 366 * 86400.0


def explored(
    operator: Callable[[Manager], None],
    *,
    changes: int = 120,
    hints: Hints = HINTS,
    failures: int = 1,
    patience: Patience | None = None,
    **more: Any,
) -> Report:
    budget = Budget(changes=changes, failures=failures)
    systems = in_memory(Harbour, operator, patience=patience)
    return run_virtual(explore(Harbour, systems, hints, budget=budget, **more), limit=YEAR)


def failure_of(operator: Callable[[Manager], None], **options: Any) -> Failure:
    """The one failure that is found, which its replay shows again."""
    report = explored(operator, **options)
    assert report.failures, report
    found = report.failures[0]
    again = explored(operator, replay=found.replay, hints=options.get("hints", HINTS))
    assert [(str(f.story), f.finding.signature) for f in again.failures] == [
        (str(found.story), found.finding.signature)
    ]
    return found


def steps(failure: Failure) -> list[str]:
    return [line.partition(". ")[2] for line in str(failure.story).splitlines()]


def places(failure: Failure) -> list[str]:
    return [str(d) for d in failure.finding.differences]


def test_a_right_operator_passes_and_every_field_is_covered() -> None:
    report = explored(setup, changes=240)
    report.check()
    assert report.coverage.missing() == []
    done, wanted = report.coverage.count("alter")
    assert done == wanted == 10


def test_the_same_seed_makes_the_same_changes_and_another_one_others() -> None:
    def replays(seed: int) -> list[str]:
        return [f.replay for f in explored(setup_with(harbour.KeepsTheBanner), seed=seed, failures=2).failures]

    assert replays(1) == replays(1)


def test_convergence_a_field_that_was_taken_away_stays() -> None:
    found = failure_of(setup_with(harbour.KeepsTheBanner))
    assert found.oracle == "convergence"
    assert steps(found) == ['create with spec.title="a", spec.banner="a"', "remove spec.banner"]
    assert places(found) == ['ConfigMap default/trial data.banner: "a" / missing']


def test_convergence_an_object_is_leaked() -> None:
    found = failure_of(setup_with(harbour.LeaksLanterns))
    assert found.oracle == "convergence"
    assert steps(found)[0] == 'create with spec.title="a", spec.lanterns=[{"name":"a"}]'
    assert len(found.story.changes) == 1
    assert places(found) == ["ConfigMap default/trial-a: there / missing"]


def test_idempotence() -> None:
    found = failure_of(setup_with(harbour.SignsItsWork))
    assert found.oracle == "idempotence"
    assert steps(found) == ['create with spec.title="a"', "apply the same again and restart the operator"]
    assert "PATCH /api/v1/namespaces/default/configmaps/trial" in found.finding.text


def test_rollback() -> None:
    found = failure_of(setup_with(harbour.BearsAGrudge))
    assert found.oracle == "rollback"
    assert steps(found)[1:] == [f'set what cannot work: spec.image="{harbour.GONE}"', "go back to the last good spec"]
    assert "ImageUnknown" in found.finding.text


def test_silence_about_a_spec_that_cannot_work() -> None:
    found = failure_of(setup_with(harbour.SaysNothing))
    assert found.oracle == "silence"
    assert steps(found)[1:] == [f'set what cannot work: spec.image="{harbour.GONE}"']


def test_silence_of_who_reports_nothing_at_all() -> None:
    report = explored(
        setup_with(harbour.LooksAway), replay='{"start":{"spec":{"title":"a","berths":0}},"changes":[]}'
    )
    assert [f.oracle for f in report.failures] == ["silence"]
    assert "condition Ready is missing" in report.failures[0].finding.text


def test_silence_while_it_tries_for_ever() -> None:
    found = failure_of(setup_with(harbour.RaisesForEver))
    assert found.oracle == "silence"
    assert steps(found) == ['create with spec.title="a", spec.berths=0']
    assert "ZeroDivisionError" in found.finding.text


def test_generation() -> None:
    found = failure_of(setup_with(harbour.LooksOnce))
    assert found.oracle == "generation"
    assert len(found.story.changes) == 1
    assert "status.observedGeneration is 1, metadata.generation is 2" in found.finding.text


@pytest.mark.parametrize("restless", [harbour.CannotDecide, harbour.KeepsTheLog])
def test_settling(restless: type[harbour.HarbourReconciler]) -> None:
    found = failure_of(setup_with(restless), patience=Patience(limit=90))
    assert found.oracle == "settling"
    assert steps(found) == ['create with spec.title="a", spec.berths=20']
    assert "PATCH /api/v1/namespaces/default/configmaps/trial" in found.finding.text


def test_crash() -> None:
    found = failure_of(harbour.setup_that_dies)
    assert found.oracle == "crash"
    assert steps(found) == ['create with spec.title="a", spec.banner="a"']
    assert "RuntimeError: the flagpole broke" in found.finding.text


def test_deletion() -> None:
    found = failure_of(setup_with(harbour.HoldsOn), changes=300)
    assert found.oracle == "deletion"
    assert [c.kind for c in found.story.changes][-1] == "recreate"
    assert "sea.example.com/lanterns" in found.finding.text


def test_refusal_the_cluster_has_a_laxer_definition() -> None:
    lax = definition(Harbour)
    spec = lax["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["berths"]["maximum"]
    systems = in_memory(lax, setup)
    report = run_virtual(explore(Harbour, systems, HINTS, budget=Budget(failures=1)), limit=YEAR)
    assert [f.oracle for f in report.failures] == ["refusal"]
    assert steps(report.failures[0])[1:] == ["try what is not valid: spec.berths=21 (above the maximum)"]


def test_a_failure_is_raised_as_its_story() -> None:
    report = explored(setup_with(harbour.SaysNothing))
    with pytest.raises(TransitionFailed, match="silence: a spec that cannot work") as raised:
        report.check()
    assert raised.value.report is report
    assert f"replay={report.failures[0].replay!r}" in str(raised.value)
