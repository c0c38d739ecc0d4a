"""Every fault that is planned is done, and what is done is seen: nothing counts as tried that does nothing."""

from __future__ import annotations

from functools import cache

import pytest

from framework_support.buoy import Buoy
from framework_support.lighthouse import Harbour, Keeper, scenario, setup_of
from steersman_testing.simulation import Fault, Plan
from steersman_testing.simulation.faults import CALL_FAULTS, EVENT_FAULTS
from steersman_testing.simulation.outcome import Outcome, run_once
from steersman_testing.simulation.run import Setting
from steersman_testing.simulation.sweep import single_faults

SETTING = Setting(setup=setup_of(Keeper), scenario=scenario, outside=Harbour, kinds=(Buoy,))
# What a fault says of itself where it is not by its own words.
TOLD = {
    "touch": "another actor writes the same object: 200",
    "lease": "another replica waits for the lease, which this one cannot renew any more",
    "late": "call {at} arrives",
}
ANSWERED = ("lost", "timeout", "error", "409", "429", "500")


@cache
def reference() -> Outcome:
    return run_once(SETTING, Plan())


def told_of(fault: Fault, outcome: Outcome) -> bool:
    """Whether the journal tells of this fault: in an entry of its own, or in how its call ended."""
    if fault.kind in ANSWERED:
        usual, found = (run.journal.calls[fault.at - 1] for run in (reference(), outcome))
        return found.number == fault.at and found.text == usual.text and found.outcome != usual.outcome
    words = TOLD[fault.kind].format(at=fault.at) if fault.kind in TOLD else fault.describe()
    told = [entry.text for entry in outcome.journal.entries if entry.actor in ("fault", "world")]
    return told.count(words) == 1


def test_every_kind_is_planned() -> None:
    assert {fault.kind for fault in single_faults(reference())} == {*CALL_FAULTS, *EVENT_FAULTS}


@pytest.mark.parametrize("kind", [*CALL_FAULTS, *EVENT_FAULTS])
def test_it_leaves_its_trace(kind: str) -> None:
    for fault in single_faults(reference()):
        if fault.kind == kind:
            outcome = run_once(SETTING, Plan((fault,)), reference())
            assert outcome.struck == (fault,), fault
            assert told_of(fault, outcome), fault


def lines(outcome: Outcome) -> list[str]:
    return [f"{entry.actor} {entry.text} {entry.outcome}".rstrip() for entry in outcome.journal.entries]


def test_a_lease_is_taken_during_an_effect() -> None:
    effect = next(entry.number for entry in reference().journal.calls if entry.text == "light a")
    outcome = run_once(SETTING, Plan((Fault("lease", effect),)), reference())
    told = "\n".join(lines(outcome))
    assert "another replica waits for the lease" in told
    assert "LeadershipLost" in told
    assert told.count("operator light a done") > "\n".join(lines(reference())).count("operator light a done")


def test_a_late_write_arrives_after_the_next_leader_has_worked() -> None:
    write = next(entry.number for entry in reference().journal.calls if entry.text == "APPLY configmaps default/a")
    outcome = run_once(SETTING, Plan((Fault("late", write, seconds=25),)), reference())
    (arrival,) = [n for n, line in enumerate(lines(outcome)) if line == f"fault call {write} arrives"]
    applies = [n for n, line in enumerate(lines(outcome)) if "APPLY configmaps default/a" in line]
    assert applies[0] < applies[1] < arrival
    late = outcome.journal.calls[write - 1]
    assert late.outcome == "200"
    assert not late.changed, "two leaders of the same version declare the same"


@pytest.mark.parametrize("text", ["late:3", "late:3+25"])
def test_a_late_call_is_as_late_as_it_must_be(text: str) -> None:
    assert str(Plan.parse(text)) == "late:3+25"


def test_a_call_that_would_overtake_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="'late:3\\+5': another replica leads after 20 s"):
        Plan.parse("late:3+5")


class LooksFirst(Keeper):
    async def draw(self, buoy: Buoy) -> None:
        await self.client.live.get(Buoy, buoy.key)
        await super().draw(buoy)


def test_a_read_that_comes_late_is_no_fault() -> None:
    setting = Setting(setup=setup_of(LooksFirst), scenario=scenario, outside=Harbour, kinds=(Buoy,))
    read = next(entry.number for entry in run_once(setting, Plan()).journal.calls if entry.sort == "read")
    outcome = run_once(setting, Plan.parse(f"late:{read}"))
    assert outcome.struck == ()
    assert outcome.violations == ()
