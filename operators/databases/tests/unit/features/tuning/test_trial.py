"""Trials: when one begins, what ends it, and that an ended one never begins again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from database_support.unit.tuning_samples import GIB, MIB, START, Figures, samples
from steersman_databases.api.autopilot.tuning import TuningTrial
from steersman_databases.engines.parameter_trial import ParameterTrial
from steersman_databases.features.tuning.trial import (
    TrialStep,
    base_value,
    collect,
    next_step,
    recorded_trial,
    retained,
)
from steersman_databases.features.tuning.window import Sample

UNTIL = START + timedelta(hours=4)


def trial_of(value: str, until: datetime) -> TuningTrial:
    """A declared trial."""
    return TuningTrial(parameter="max_wal_size", value=value, until=until)


DECLARED = trial_of("2GB", UNTIL)
RUNNING = ParameterTrial(parameter="max_wal_size", value="2GB", until=UNTIL, former="1GB")
BEGIN = START + timedelta(hours=2)


def observed(
    during: int, *, wal: float = 1000, active: float = 1, size: float = 2 * GIB, before: int = 25
) -> list[Sample]:
    """Two hours before a trial, and some minutes of it, with these changes."""

    def rates(index: int) -> Figures:
        is_trial = index > before
        noise = 1 + 0.02 * (index % 3)
        commits = 200 if is_trial else 1000
        wal_bytes = (wal if is_trial else 1000.0) * commits * noise
        return {"commits": commits, "wal_bytes": wal_bytes, "active_seconds": (active if is_trial else 1.0) * commits}

    def gauges(index: int) -> Figures:
        return {"max_wal_size": size if index >= before else GIB}

    found = samples(before + during, rates, gauges)
    begun = [replace(one, at=BEGIN + timedelta(minutes=at)) for at, one in enumerate(found[before:])]
    return [*found[:before], *begun]


def step(
    found: Sequence[Sample],
    recorded: ParameterTrial | None = RUNNING,
    now: datetime | None = None,
    declared: TuningTrial = DECLARED,
) -> TrialStep:
    """The next step at the time of the last sample, or at another one."""
    at = found[-1].at if found else BEGIN
    return next_step(declared, recorded, found, now or at, former="1GB")


def test_trial_begins_after_enough_observation() -> None:
    waiting = step(observed(0, before=10), None)
    assert waiting.trial is None and "9 of 12 periods" in waiting.message
    assert step(observed(0), None).trial == RUNNING


def test_trial_of_the_present_value_waits() -> None:
    present = trial_of("1GB", UNTIL)
    assert step(observed(0), None, declared=present) == TrialStep(None, None, "max_wal_size is 1GB already")


@pytest.mark.parametrize(
    ("wal", "active", "verdict"), [(600, 1, "Better"), (1000, 1, "NoEffect"), (600, 0.5, "Better")]
)
def test_trial_runs_until_its_end(wal: float, active: float, verdict: str) -> None:
    running = step(observed(60, wal=wal, active=active))
    assert (running.trial, running.verdict) == (RUNNING, verdict)
    last = step(observed(119, wal=wal, active=active), now=UNTIL)
    assert last.trial is not None and last.trial.verdict == verdict
    assert last.message.startswith("the time of the trial is over. WAL bytes per transaction: ")


@pytest.mark.parametrize(("wal", "active"), [(1500, 1), (600, 1.6)])
def test_worse_metric_ends_a_trial(wal: float, active: float) -> None:
    """Less WAL does not make up for slower transactions."""
    found = step(observed(14, wal=wal, active=active))
    assert found.verdict == "Worse" and found.trial is not None and found.trial.verdict == "Worse"
    assert found.trial.former == "1GB"


def test_few_values_do_not_end_a_trial() -> None:
    assert step(observed(8, wal=1500)).trial == RUNNING


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        ([], "the operator restarted"),
        (observed(20)[25:], "the operator restarted"),
        ([*observed(20)[:-1], replace(observed(20)[-1], server="pod-1 7")], "the primary restarted or changed"),
        (
            [*observed(20)[:-1], replace(observed(20)[-1], counters={"commits": 1})],
            "the statistics were reset, by a crash of the server or a user",
        ),
    ],
)
def test_trial_without_comparison_ends(found: Sequence[Sample], cause: str) -> None:
    ended = step(found)
    assert ended.trial is not None and ended.trial.verdict == "Unclear"
    assert ended.message == f"{cause}, so nothing can be compared"


def test_trial_without_metrics_ends() -> None:
    found = observed(20)
    ended = step(found, now=found[-1].at + timedelta(minutes=16))
    assert ended.trial is not None and ended.trial.verdict == "Unclear"
    assert ended.message.startswith("the metrics of the primary were unreachable since 02:19 UTC")


def test_ended_trial_never_begins_again() -> None:
    ended = replace(RUNNING, verdict="Worse", message="more WAL")
    assert step(observed(0), ended) == TrialStep(ended, "Worse", "more WAL")
    later = trial_of("2GB", UNTIL + timedelta(hours=1))
    again = step(observed(0), ended, declared=later).trial
    assert again is not None and again.verdict is None, "another time is another trial"


def test_trial_whose_time_is_over_never_begins() -> None:
    ended = step(observed(0), None, now=UNTIL)
    assert ended.trial is not None and ended.trial.verdict == "Unclear"


@pytest.mark.parametrize(
    "trial", [RUNNING, replace(RUNNING, verdict="Better", message="less"), replace(RUNNING, former=None)]
)
def test_record_survives_json(trial: ParameterTrial) -> None:
    settings = json.loads(json.dumps({"steersman": {"trial": trial.to_record()}}))
    assert recorded_trial(settings) == trial


@pytest.mark.parametrize(
    "record",
    [None, 1, {}, {"until": "soon"}, {**RUNNING.to_record(), "verdict": "Fine"}, {"until": "2030-01-01T00:00:00"}],
)
def test_malformed_record_is_no_trial(record: object) -> None:
    assert recorded_trial({"steersman": {"trial": record}}) is None
    assert recorded_trial(None) is None


@pytest.mark.parametrize(
    ("value", "base"), [("2GB", 2 * GIB), ("64MB", 64 * MIB), ("512kB", 512 << 10), ("400", 400)]
)
def test_values_are_compared_in_base_units(value: str, base: float) -> None:
    assert base_value(value) == base


def test_samples_of_a_long_trial_are_bounded() -> None:
    """A trial may last for months. Its samples are in memory."""
    kept = list[Sample]()
    for sample in observed(5000, wal=600):
        kept = [*retained([*kept, sample], RUNNING, sample.at)]
        assert kept[-1] is sample
    assert len(kept) < 1200
    evidence = collect(kept, RUNNING)
    assert len(evidence.before) == 24 and len(evidence.during) > 400


def test_samples_of_a_trial_without_effect_are_bounded() -> None:
    """A server may refuse the value."""
    kept = list[Sample]()
    for sample in observed(5000, size=GIB):
        kept = [*retained([*kept, sample], RUNNING, sample.at)]
    assert kept[-1].at - kept[0].at <= timedelta(hours=24)
