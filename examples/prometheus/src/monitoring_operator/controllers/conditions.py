"""Conditions and replica counts of a Prometheus, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steersman import Condition
from steersman.api.apps_v1 import StatefulSet

from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.configuration import DeclaredConfiguration
from monitoring_operator.controllers.replicas import Replica
from monitoring_operator.resources import DEFAULT_SERVICE_ACCOUNT

_MAX_MESSAGE_LENGTH = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """State of a Prometheus after a reconcile.

    Attributes:
        prometheus: the Prometheus.
        declared: its configuration.
        workload: its StatefulSet.
        replicas: its running replicas.
        has_service_account: True if the ServiceAccount of the pods exists.
    """

    prometheus: Prometheus
    declared: DeclaredConfiguration
    workload: StatefulSet
    replicas: Sequence[Replica]
    has_service_account: bool


def reconciled_condition(observed: Observed) -> Condition:
    """Return Reconciled: True if every running replica reports the declared configuration."""
    blocked = _blocking_problem(observed)
    if blocked is not None:
        return condition(observed.prometheus, "Reconciled", False, *blocked)
    invalid = len(observed.declared.problems)
    message = f"All running servers ({len(observed.replicas)}) have loaded revision {observed.declared.revision}."
    if invalid:
        message += f" Invalid monitors and rules are left out ({invalid}). See their Events."
    return condition(observed.prometheus, "Reconciled", True, "ConfigurationLoaded", message)


def available_condition(observed: Observed) -> Condition:
    """Return Available: True if all replicas of the StatefulSet are available."""
    desired, available = observed.prometheus.spec.replicas, observed.workload.status.available_replicas or 0
    if available >= desired:
        return condition(
            observed.prometheus, "Available", True, "AllReplicasAvailable", "All replicas are available."
        )
    reason = "SomeReplicasUnavailable" if available else "NoReplicaAvailable"
    message = f"{available} of {desired} replicas are available. See the Events of the pods."
    return condition(observed.prometheus, "Available", False, reason, message)


def condition(prometheus: Prometheus, kind: str, true: bool, reason: str, message: str) -> Condition:
    """Return a condition of the current generation."""
    return Condition(
        type=kind,
        status="True" if true else "False",
        reason=reason,
        message=message[:_MAX_MESSAGE_LENGTH],
        observed_generation=prometheus.metadata.generation,
    )


def rejected_rules(observed: Observed) -> dict[str, str]:
    """Return why promtool rejected rule files of the declared revision, by file."""
    return {
        rejection.file: rejection.reason
        for replica in observed.replicas
        if replica.report is not None
        for rejection in replica.report.rejections
        if rejection.revision == observed.declared.revision and rejection.file in observed.declared.rules
    }


def _blocking_problem(observed: Observed) -> tuple[str, str] | None:
    """Return reason and message of the first problem, or None."""
    if not observed.has_service_account:
        name = observed.prometheus.spec.service_account_name or DEFAULT_SERVICE_ACCOUNT
        namespace = observed.prometheus.metadata.namespace
        return "ServiceAccountMissing", (
            f"ServiceAccount {namespace}/{name} does not exist. Create it, and allow it to list and watch targets."
        )
    if not observed.replicas and observed.prometheus.spec.replicas:
        return (
            "NoRunningReplica",
            "No replica runs yet. If this lasts, see the Events of the StatefulSet.",
        )
    for replica in observed.replicas:
        problem = _replica_problem(replica, observed.declared.revision)
        if problem is not None:
            return problem
    return None


def _replica_problem(replica: Replica, revision: str) -> tuple[str, str] | None:
    report = replica.report
    if report is None:
        return "ServerUnreachable", f"{replica.name} does not respond to the operator. See the logs of the pod."
    rejected = "; ".join(f"{each.file}: {each.reason}" for each in report.rejections if each.revision == revision)
    if report.revision != revision and rejected:
        return "ConfigurationRejected", f"{replica.name} keeps its previous configuration. {rejected}"
    if report.revision != revision:
        return "ReloadPending", f"{replica.name} has not loaded revision {revision} yet."
    if not report.is_applied:
        return "ReloadFailed", f"{replica.name} could not reload revision {revision}. See the logs of the pod."
    if rejected:
        return "RulesRejected", f"{replica.name} runs without rules that promtool rejected. {rejected}"
    return None
