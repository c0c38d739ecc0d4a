"""Each oracle reports the faulty operator and passes the correct one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from framework_support import webapp
from framework_support.webapp import WebApp, setup, setup_with
from steersman.manager import Manager
from steersman_manifests.crd import definition
from steersman_testing import run_virtual
from steersman_testing.transitions import (
    Budget,
    ExplorationFailure,
    ExplorationReport,
    Hints,
    SettleOptions,
    TransitionFailed,
    explore,
    in_memory,
)

HINTS = Hints(bad={"spec.image": [webapp.MISSING_IMAGE]})
YEAR = 366 * 86400.0
WHOLE = os.environ.get("SIMULATE") == "whole"


def run_exploration(
    operator: Callable[[Manager], None],
    *,
    changes: int = 120,
    hints: Hints = HINTS,
    failures: int = 1,
    patience: SettleOptions | None = None,
    **more: Any,
) -> ExplorationReport:
    budget = Budget(changes=changes, failures=failures)
    system_factory = in_memory(WebApp, operator, settle_options=patience)
    return run_virtual(explore(WebApp, system_factory, hints, budget=budget, **more), limit=YEAR)


def failure_of(operator: Callable[[Manager], None], **options: Any) -> ExplorationFailure:
    """Return the only failure, and check its replay."""
    report = run_exploration(operator, **options)
    assert report.failures, report
    found = report.failures[0]
    again = run_exploration(operator, replay=found.replay, hints=options.get("hints", HINTS))
    assert [(str(f.sequence), f.finding.signature) for f in again.failures] == [
        (str(found.sequence), found.finding.signature)
    ]
    return found


def sequence_lines(failure: ExplorationFailure) -> list[str]:
    return [line.partition(". ")[2] for line in str(failure.sequence).splitlines()]


def difference_lines(failure: ExplorationFailure) -> list[str]:
    return [str(d) for d in failure.finding.differences]


def test_correct_operator_passes_with_full_coverage() -> None:
    report = run_exploration(setup, changes=240 if WHOLE else 40)
    report.check()
    done, planned = report.coverage.count("alter")
    assert planned == 10
    if WHOLE:
        assert report.coverage.missing() == []
        assert done == planned


def test_exploration_is_deterministic_per_seed() -> None:
    def replays(seed: int) -> list[str]:
        return [f.replay for f in run_exploration(setup_with(webapp.NeverRemovesKeys), seed=seed).failures]

    assert replays(1) == replays(1)


def test_convergence_reports_field_left_after_removal() -> None:
    found = failure_of(setup_with(webapp.NeverRemovesKeys))
    assert found.oracle == "convergence"
    assert sequence_lines(found) == ['create with spec.title="a", spec.banner="a"', "remove spec.banner"]
    assert difference_lines(found) == ['ConfigMap default/trial data.banner: "a" / missing']


def test_convergence_an_object_is_leaked() -> None:
    found = failure_of(setup_with(webapp.LeaksBackendConfigMaps))
    assert found.oracle == "convergence"
    assert sequence_lines(found)[0] == 'create with spec.title="a", spec.backends=[{"name":"a"}]'
    assert len(found.sequence.changes) == 1
    assert difference_lines(found) == ["ConfigMap default/trial-a: there / missing"]


def test_idempotence() -> None:
    found = failure_of(setup_with(webapp.WritesProcessNumber))
    assert found.oracle == "idempotence"
    assert sequence_lines(found) == [
        'create with spec.title="a"',
        "apply the same spec again and restart the operator",
    ]
    assert "PATCH /api/v1/namespaces/default/configmaps/trial" in found.finding.text


def test_rollback() -> None:
    found = failure_of(setup_with(webapp.NeverRecovers))
    assert found.oracle == "rollback"
    assert sequence_lines(found)[1:] == [
        f'set a bad value: spec.image="{webapp.MISSING_IMAGE}"',
        "roll back to the last good spec",
    ]
    assert "ImageUnknown" in found.finding.text


def test_silence_about_a_spec_that_cannot_work() -> None:
    found = failure_of(setup_with(webapp.HidesImageError))
    assert found.oracle == "silence"
    assert sequence_lines(found)[1:] == [f'set a bad value: spec.image="{webapp.MISSING_IMAGE}"']


def test_silence_reports_missing_condition() -> None:
    report = run_exploration(
        setup_with(webapp.IgnoresZeroReplicas), replay='{"start":{"spec":{"title":"a","replicas":0}},"changes":[]}'
    )
    assert [f.oracle for f in report.failures] == ["silence"]
    assert "condition Ready is missing" in report.failures[0].finding.text


def test_silence_reports_endless_retries() -> None:
    found = failure_of(setup_with(webapp.DividesByReplicas))
    assert found.oracle == "silence"
    assert sequence_lines(found) == ['create with spec.title="a", spec.replicas=0']
    assert "ZeroDivisionError" in found.finding.text


def test_generation() -> None:
    found = failure_of(setup_with(webapp.StaleObservedGeneration))
    assert found.oracle == "generation"
    assert len(found.sequence.changes) == 1
    assert "status.observedGeneration is 1, metadata.generation is 2" in found.finding.text


@pytest.mark.parametrize("reconciler", [webapp.Oscillates, webapp.WritesTimestamps])
def test_settling(reconciler: type[webapp.WebAppReconciler]) -> None:
    replay = "" if WHOLE else '{"start":{"spec":{"title":"a","replicas":20}},"changes":[]}'
    report = run_exploration(setup_with(reconciler), patience=SettleOptions(timeout=90), replay=replay)
    found = report.failures[0]
    assert found.oracle == "settling"
    assert sequence_lines(found) == ['create with spec.title="a", spec.replicas=20']
    assert "PATCH /api/v1/namespaces/default/configmaps/trial" in found.finding.text


def test_crash() -> None:
    found = failure_of(webapp.setup_that_crashes)
    assert found.oracle == "crash"
    assert sequence_lines(found) == ['create with spec.title="a", spec.banner="a"']
    assert "RuntimeError: the banner task failed" in found.finding.text


def test_deletion() -> None:
    found = failure_of(setup_with(webapp.BlocksDeletion), changes=300)
    assert found.oracle == "deletion"
    assert [c.kind for c in found.sequence.changes][-1] == "recreate"
    assert "shop.example.com/backends" in found.finding.text


def test_refusal_the_cluster_has_a_laxer_definition() -> None:
    lax = definition(WebApp)
    spec = lax["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["replicas"]["maximum"]
    system_factory = in_memory(lax, setup)
    report = run_virtual(explore(WebApp, system_factory, HINTS, budget=Budget(failures=1)), limit=YEAR)
    assert [f.oracle for f in report.failures] == ["refusal"]
    assert sequence_lines(report.failures[0])[1:] == ["try an invalid value: spec.replicas=21 (above the maximum)"]


def test_a_failure_is_raised_as_its_story() -> None:
    report = run_exploration(setup_with(webapp.HidesImageError))
    with pytest.raises(TransitionFailed, match="silence: a spec that cannot work") as raised:
        report.check()
    assert raised.value.report is report
    assert f"replay={report.failures[0].replay!r}" in str(raised.value)
