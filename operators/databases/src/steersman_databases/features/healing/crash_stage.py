"""Stages of healing.

Each reports a condition and an entry of `status.automation` while there is something to report.
"""

from __future__ import annotations

from steersman_databases.api import Cluster
from steersman_databases.api.autopilot.automation import AutomationMode, AutomationStatus, limited_mode
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.features.parameters import crash_loops
from steersman_databases.features.parameters.model import evaluate_trials

STABLE = "ServersStable"


def crash_loop_mode(cluster: Cluster, limit: AutomationMode) -> AutomationMode:
    """Return the effective mode for crash loops."""
    return limited_mode(cluster.spec.healing.crash_loops.mode, limit)


def report_crash_loop(
    context: ClusterContext, mode: AutomationMode, state: ClusterState, conditions: ConditionSet
) -> AutomationStatus | None:
    """Set ServersStable, and return the entry of the status. The settings are changed with all other parameters."""
    declared = context.declared
    loop = None if mode == "Disabled" else crash_loops.find_crash_loop(declared, state)
    before = [one for one in evaluate_trials(declared, state).reverted if one.crashes]
    found = crash_loops.suspects(declared, state, loop)
    names = sorted({one.name for one in before} | {one.name for one in found})
    listed = ", ".join(names)
    action = f"restored the previous value of {listed}"
    if loop is None:
        conditions.remove(STABLE)
        if not before or mode == "Disabled":
            return None
        decision, message = "ParameterReverted", "the servers are stable with the previous values"
    else:
        message = f"{loop.description}; {crash_loops.last_change(state, loop)}"
        decision = "CrashLoop"
        if names and mode == "Automatic":
            decision, message = "ParameterReverted", f"{message}; {action}"
        elif found:
            decision, message = "RevertRecommended", f"{message}; the likely cause is {listed}"
        conditions.set(STABLE, False, decision, message)
    evidence = None if loop is None else loop.description
    return AutomationStatus(
        name="CrashLoops",
        mode=mode,
        decision=decision,
        message=message,
        evidence=evidence,
        last_action=action if decision == "ParameterReverted" else None,
    )
