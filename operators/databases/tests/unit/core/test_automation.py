"""Entries of status.automation from several functions."""

from __future__ import annotations

from steersman_databases.api.autopilot.automation import AutomationName, AutomationStatus
from steersman_databases.core.automation import AutomationReport


def entry(name: AutomationName, decision: str = "Idle") -> AutomationStatus:
    """An entry of a function."""
    return AutomationStatus(name=name, mode="Automatic", decision=decision, message="")


def test_merged_function_that_did_not_run_keeps_entry() -> None:
    report = AutomationReport()
    report.record(["Resources"], [entry("Resources", "Applied")])
    assert report.merged([entry("Resources"), entry("Storage")]) == (entry("Storage"), entry("Resources", "Applied"))


def test_merged_undeclared_function_loses_entry() -> None:
    report = AutomationReport()
    report.record(["Storage", "WalStorage"], [entry("Storage")])
    previous = [entry("Storage"), entry("WalStorage"), entry("Resources")]
    assert report.merged(previous) == (entry("Storage"), entry("Resources"))
