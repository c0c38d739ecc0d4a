"""Each planned fault takes effect and appears in the trace."""

from __future__ import annotations

import os
from functools import cache

import pytest

from framework_support.dns_operator import DnsZone, WidgetReconciler, scenario, setup_for
from framework_support.widget import Widget
from steersman_testing.simulation import Fault, FaultPlan
from steersman_testing.simulation.fault_space import single_faults
from steersman_testing.simulation.faults import CALL_FAULTS, EVENT_FAULTS
from steersman_testing.simulation.run import SimulationConfig
from steersman_testing.simulation.run_result import RunResult, run_once

CONFIG = SimulationConfig(setup=setup_for(WidgetReconciler), scenario=scenario, outside=DnsZone, kinds=(Widget,))
# Trace texts of faults that differ from their description.
TRACE_TEXTS = {
    "concurrent-write": "another client writes the same object: 200",
    "lease": "another replica acquires the lease, which this one can no longer renew",
    "delayed-write": "call {at} arrives",
}
WHOLE = os.environ.get("SIMULATE") == "whole"
CHANGED_RESPONSES = ("lost", "timeout", "error", "409", "429", "500")


@cache
def reference() -> RunResult:
    return run_once(CONFIG, FaultPlan())


def is_in_trace(fault: Fault, result: RunResult) -> bool:
    """Return True if the trace contains the fault or its outcome."""
    if fault.kind in CHANGED_RESPONSES:
        expected, found = (run.trace.calls[fault.at - 1] for run in (reference(), result))
        return found.call_number == fault.at and found.text == expected.text and found.outcome != expected.outcome
    text = TRACE_TEXTS[fault.kind].format(at=fault.at) if fault.kind in TRACE_TEXTS else fault.describe()
    texts = [entry.text for entry in result.trace.entries if entry.actor in ("fault", "world")]
    return texts.count(text) == 1


def test_every_kind_is_planned() -> None:
    assert {fault.kind for fault in single_faults(reference())} == {*CALL_FAULTS, *EVENT_FAULTS}


@pytest.mark.parametrize("kind", [*CALL_FAULTS, *EVENT_FAULTS])
def test_fault_is_recorded_in_outcome(kind: str) -> None:
    # By default every third place of each kind.
    faults = [fault for fault in single_faults(reference()) if fault.kind == kind]
    for fault in faults if WHOLE else faults[::3]:
        result = run_once(CONFIG, FaultPlan((fault,)), reference())
        assert result.injected == (fault,), fault
        assert is_in_trace(fault, result), fault


def trace_lines(result: RunResult) -> list[str]:
    return [f"{entry.actor} {entry.text} {entry.outcome}".rstrip() for entry in result.trace.entries]


def test_lease_can_change_during_an_effect() -> None:
    effect = next(entry.call_number for entry in reference().trace.calls if entry.text == "upsert record a")
    result = run_once(CONFIG, FaultPlan((Fault("lease", effect),)), reference())
    told = "\n".join(trace_lines(result))
    assert "another replica acquires the lease" in told
    assert "LeadershipLost" in told
    assert told.count("operator upsert record a done") > "\n".join(trace_lines(reference())).count(
        "operator upsert record a done"
    )


def test_late_write_arrives_after_next_leader() -> None:
    write = next(entry.call_number for entry in reference().trace.calls if entry.text == "APPLY configmaps default/a")
    result = run_once(CONFIG, FaultPlan((Fault("delayed-write", write, seconds=25),)), reference())
    (arrival,) = [n for n, line in enumerate(trace_lines(result)) if line == f"fault call {write} arrives"]
    applies = [n for n, line in enumerate(trace_lines(result)) if "APPLY configmaps default/a" in line]
    assert applies[0] < applies[1] < arrival
    late = result.trace.calls[write - 1]
    assert late.outcome == "200"
    assert not late.changed_state, "two leaders of the same version declare the same"


@pytest.mark.parametrize("text", ["delayed-write:3", "delayed-write:3+25"])
def test_late_call_delay_is_normalized(text: str) -> None:
    assert str(FaultPlan.parse(text)) == "delayed-write:3+25"


def test_late_call_before_takeover_is_rejected() -> None:
    with pytest.raises(ValueError, match="'delayed-write:3\\+5': the delay must be at least 20 s"):
        FaultPlan.parse("delayed-write:3+5")


class ReadsFirst(WidgetReconciler):
    async def apply_config_map(self, widget: Widget) -> None:
        await self.client.live.get(Widget, widget.key)
        await super().apply_config_map(widget)


def test_late_read_is_not_injected() -> None:
    config = SimulationConfig(setup=setup_for(ReadsFirst), scenario=scenario, outside=DnsZone, kinds=(Widget,))
    read = next(entry.call_number for entry in run_once(config, FaultPlan()).trace.calls if entry.call_kind == "read")
    result = run_once(config, FaultPlan.parse(f"delayed-write:{read}"))
    assert result.injected == ()
    assert result.violations == ()
