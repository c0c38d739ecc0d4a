"""Conditions and status of a cluster, from its observed state."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeVar

import msgspec

from steersman.meta import Condition, find_condition, set_condition
from steersman_databases.api import Cluster, ClusterStatus, MySQLCluster, MySQLClusterStatus, PostgreSQLClusterStatus
from steersman_databases.api.cluster_common import ClusterMember, ClusterPhase, ClusterSecrets
from steersman_databases.api.kstatus import KSTATUS_CONDITIONS, with_kstatus
from steersman_databases.api.reasons import MYSQL_CLUSTER_REASONS, advice_for, with_next_step
from steersman_databases.cluster.actions import Action, Wait, describe
from steersman_databases.cluster.rules import minor_versions
from steersman_databases.cluster.state import ClusterState, Instance, served_identity
from steersman_databases.cluster.status.storage_status import storage_status
from steersman_databases.core.api_errors import REASONS
from steersman_databases.core.outcome import truncated
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import instances_selector
from steersman_databases.features.parameters.model import deferral_note, deferred_instances, is_lowered_on_restart

S = TypeVar("S", bound=ClusterStatus)

ConditionEvent = tuple[str, str]
"""Reason and message of an Event."""

_CONDITION_ORDER = {type_: number for number, type_ in enumerate(MYSQL_CLUSTER_REASONS)}
WARNING_REASONS = REASONS | frozenset(
    {
        "AdministratorSecretMissing",
        "ArchivingFailed",
        "AtMaxSize",
        "OwnedByAnother",
        "CleanupPrevented",
        "ConsentMismatch",
        "BackupFailed",
        "ConsentRequired",
        "CrashLoop",
        "DataLost",
        "DiskFull",
        "Failed",
        "Failover",
        "ErrantTransactions",
        "Expiring",
        "FailingOver",
        "FillsTooFast",
        *("ImageTooOld", "ImageUnavailable", "InstanceCrashing", "OperatorTooOld"),
        "MemberError",
        "PodRejected",
        "InvalidSchedule",
        "NameConflict",
        "QuorumLost",
        "NoPrimary",
        "NoSynchronousStandby",
        "NotExpandable",
        "NotForAllRoles",
        "StaleCertificate",
        "CADistrusted",
        "Overdue",
        "StorageClassMismatch",
        "OwnerSecretInvalid",
        "ParameterRejected",
        "ParameterReverted",
        "PoolerCrashing",
        "PreCheckFailed",
        "QueryInvalid",
        "QuotaExceeded",
        "ReceiverStuck",
        "ResizeIncomplete",
        "FinalBackupFailed",
        "RecoveryFailed",
        "RestoreFailed",
        "SourceMismatch",
        "SourceNotFound",
        "SourceNotPermitted",
        "StoreNotFound",
        "RetainedDataMismatch",
        "RevertRecommended",
        "RolledBack",
        "RunningLow",
        "SecretInvalid",
        "SlotInactive",
        "SlotMissing",
        "SuspiciousSize",
        "SwitchoverRejected",
        "Unschedulable",
        "VerificationOverdue",
        "UnsupportedVersion",
        *("VolumeLost", "VacuumRecommended", "WALRetained", "NotServed", "WraparoundApproaching", "WritesRejected"),
    }
)
"""Reasons that are Events of type Warning."""
BACKUP_CONDITIONS = frozenset({"ContinuousArchiving", "BackedUp", "BackupsVerified"})
"""Conditions of backups, which have Events of their own."""
INDEPENDENT_CONDITIONS = BACKUP_CONDITIONS | {
    *("AutogrowReady", "QueriesValid", "ReplicationAdvancing", "ReplicationSlotsReady", "ServersStable"),
    *("VerticalScalingReady", "WebhooksDisabled", "WraparoundPrevented"),
}
"""Conditions without which the cluster is Ready."""
_STATUS_OF: dict[bool | None, Literal["True", "False", "Unknown"]] = {True: "True", False: "False", None: "Unknown"}
_HOLDS_OF = {status: holds for holds, status in _STATUS_OF.items()}


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """One condition. ``message`` is the clause before the advice of ``reason``.

    ``holds`` is None if the status is unknown.
    """

    type: str
    holds: bool | None
    reason: str
    message: str


@dataclass(slots=True)
class ConditionSet:
    """Conditions that a reconcile has evaluated.

    Other conditions are not declared, or are not known yet.
    """

    updates: dict[str, ConditionUpdate] = field(default_factory=dict[str, ConditionUpdate])
    removed: set[str] = field(default_factory=set[str])

    def set(self, type_: str, holds: bool | None, reason: str, message: str) -> None:
        """Set a condition."""
        self.updates[type_] = ConditionUpdate(type_, holds, reason, message)
        self.removed.discard(type_)

    def has_reason(self, type_: str, reason: str) -> bool:
        """Return True if a condition was set with this reason."""
        update = self.updates.get(type_)
        return update is not None and update.reason == reason

    def keep_previous(self, type_: str, *, unless: str) -> None:
        """Keep the previous condition if it was set with the reason ``unless``."""
        if self.has_reason(type_, unless):
            del self.updates[type_]

    def add_not_ready(self, reason: str, message: str) -> None:
        """Set Ready to False, or add a message if it is False.

        A hibernated cluster keeps its reason.
        """
        ready = self.updates.get("Ready")
        if ready is None or ready.holds:
            self.set("Ready", False, reason, message)
        elif ready.reason == "Hibernated":
            self.set("Ready", False, ready.reason, f"{ready.message}; {message}")
        else:
            self.set("Ready", False, reason, f"{message}; {ready.message}")

    def remove(self, type_: str) -> None:
        """Remove a condition: nothing is declared for it."""
        self.removed.add(type_)
        self.updates.pop(type_, None)


def conditions_of(
    cluster: Cluster, previous: Sequence[Condition], condition_set: ConditionSet, now: datetime
) -> tuple[Condition, ...]:
    """Return all conditions. Those that were not evaluated stay unchanged."""
    conditions = tuple(c for c in previous if c.type not in condition_set.removed)
    for update in condition_set.updates.values():
        advice = advice_for(type(cluster).api_resource.kind, update.type, update.reason)
        message = with_next_step(update.message, advice)
        condition = Condition(
            type=update.type,
            status=_STATUS_OF[update.holds],
            reason=update.reason,
            message=truncated(message),
            observed_generation=cluster.metadata.generation,
        )
        conditions = set_condition(conditions, condition, now)
    conditions = with_kstatus(conditions, now, independent=INDEPENDENT_CONDITIONS)
    # In one order, whatever was found out first.
    return tuple(sorted(conditions, key=lambda c: _CONDITION_ORDER.get(c.type, len(_CONDITION_ORDER))))


def changed_conditions(previous: Sequence[Condition], conditions: Sequence[Condition]) -> Sequence[ConditionEvent]:
    """Return new conditions, and those with another reason or status."""
    old = {c.type: (c.status, c.reason) for c in previous}
    return [
        (c.reason, c.message)
        for c in conditions
        if old.get(c.type) != (c.status, c.reason) and c.type not in (*BACKUP_CONDITIONS, *KSTATUS_CONDITIONS)
    ]


def evaluate_available(declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
    """Evaluate Available: the primary accepts writes, as its own writes show."""
    primary = state.primary
    if primary is not None and primary.pod_ready:
        name, error = declared.names.instance(primary.ordinal), primary.member.write_error if primary.member else ""
        if error:
            conditions.set("Available", False, "WritesRejected", f"primary {name} accepts no writes: {error}")
        else:
            conditions.set("Available", True, "PrimaryAvailable", f"primary {name} accepts writes")
    elif declared.hibernated:
        conditions.set("Available", False, "Hibernated", "the cluster is hibernated")
    elif state.instances and all(i.fenced for i in state.instances):
        conditions.set("Available", False, "Fenced", "all instances are fenced")
    elif any(i.pod_ready for i in state.instances):
        conditions.set("Available", False, "FailingOver", "the instances elect a new primary")
    else:
        conditions.set("Available", False, "NoPrimary", "no instance accepts writes")


def evaluate_available_while_deleting(
    declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet
) -> None:
    """Evaluate Available while the cluster is being deleted.

    A missing primary is expected then.
    """
    evaluate_available(declared, state, conditions)
    if not conditions.updates["Available"].holds:
        conditions.set("Available", False, "Deleting", "the cluster is being deleted")


def evaluate_ca_trust(
    declared: DeclaredCluster, state: ClusterState, distrusting: Container[str], conditions: ConditionSet
) -> None:
    """Evaluate the trust in the current CAs.

    Args:
        distrusting: UIDs of pods that do not trust them.
    """
    pods = {declared.names.instance(i.ordinal): i.pod for i in state.instances if i.pod is not None}
    names = [name for name, pod in pods.items() if pod.metadata.uid in distrusting]
    if names:
        message = f"{', '.join(names)} {'does' if len(names) == 1 else 'do'} not trust the current CA"
        conditions.set("CertificatesValid", False, "CADistrusted", message)


def evaluate_parameters(declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
    """Evaluate ParametersApplied: all servers use the declared configuration.

    Sized parameters of pods that were resized in place take effect at the next restart.
    """
    deferred = deferred_instances(declared, state)
    due = [member for member in state.members.members if member.restart_due and member.instance not in deferred]
    pending = {setting.name for member in due for setting in member.pending_settings}
    if any(map(is_lowered_on_restart, due)):
        message = (
            f"restarting for {', '.join(sorted(pending))}, the primary first: a replica's value must not be lower"
        )
        conditions.set("ParametersApplied", False, "LoweringParameter", message)
    elif due:
        conditions.set(
            "ParametersApplied", False, "RestartPending", f"restarting for {', '.join(sorted(pending))}".rstrip()
        )
    elif state.members.settings is not None:
        message = f"all servers use the declared parameters{deferral_note(declared, deferred)}"
        conditions.set("ParametersApplied", True, "Applied", message)


def phase_of(cluster: Cluster, conditions: ConditionSet) -> ClusterPhase:
    """Return the phase.

    A paused cluster keeps its condition Ready.
    """
    ready, available = (
        conditions.updates.get("Ready") or _previous_ready(cluster),
        conditions.updates.get("Available"),
    )
    if ready is not None and ready.holds and (available is None or available.holds):
        return "Ready"
    if ready is not None and ready.reason == "Hibernated":
        return "Hibernated"
    has_primary = available is not None and available.holds
    if any(
        f.reason in _FAILED_REASONS and not (has_primary and f.reason == "NameConflict")
        for f in conditions.updates.values()
        if f.type in ("Ready", "OutageRecoverable")
    ):
        return "Failed"
    if ready is not None and ready.reason in _PENDING_REASONS:
        return "Pending"
    was_provisioned = cluster.status.phase in _WAS_PROVISIONED
    provisioned = all(f.holds for f in conditions.updates.values() if f.type in _PROVISIONED_WHEN)
    return (
        "Degraded"
        if was_provisioned or (provisioned and ready is not None and ready.reason == "Degraded")
        else "Provisioning"
    )


def _previous_ready(cluster: Cluster) -> ConditionUpdate | None:
    ready = find_condition(cluster.status.conditions, "Ready")
    return None if ready is None else _update_of(ready)


def _update_of(condition: Condition) -> ConditionUpdate:
    return ConditionUpdate(condition.type, _HOLDS_OF[condition.status], condition.reason, condition.message)


_FAILED_REASONS = frozenset(
    {
        "AdministratorSecretMissing",
        "ConsentMismatch",
        "ConsentRequired",
        "DataLost",
        "InstanceCrashing",
        "NameConflict",
        "RecoveryFailed",
        "RestoreFailed",
        "RetainedDataMismatch",
        "SecretInvalid",
        "UnsupportedVersion",
    }
)
_PENDING_REASONS = frozenset({"Unschedulable", "ImageUnavailable", "PodRejected"})
_PROVISIONED_WHEN = frozenset(
    {"Available", "Synchronous", "BootstrapDatabaseReady", "PostInitSQLApplied", "PoolersReady"}
)
"""Conditions that must hold before a new cluster counts as provisioned."""
_WAS_PROVISIONED = ("Ready", "Degraded", "Failed", "Hibernated")


def evaluate_upgraded(
    declared: DeclaredCluster, state: ClusterState, operator_image: str, conditions: ConditionSet
) -> None:
    """Evaluate UpToDate: the servers run the newest image of their version.

    Instances with different minor versions of one image are reported, too.
    """
    running = state.primary.image if state.primary is not None else ""
    with_declared_image = declared.has_explicit_image or running == operator_image
    if running and with_declared_image and (behind := minor_versions.older(state)):
        conditions.set("UpToDate", False, *_minor_version_skew(declared, state, behind))
    elif declared.has_explicit_image or declared.hibernated:
        conditions.remove("UpToDate")
    elif not running:
        # The previous condition stays: other clusters must see that an upgrade has not ended well.
        return
    elif with_declared_image:
        conditions.set("UpToDate", True, "Current", f"{running} is the operator's image for {declared.version}")
    elif declared.automatic_minor_upgrades:
        conditions.set("UpToDate", False, "Upgrading", f"replacing image {running} by {operator_image}")
    else:
        conditions.set(
            "UpToDate", False, "MinorUpgradeAvailable", f"image {operator_image} is available (running {running})"
        )


def _minor_version_skew(declared: DeclaredCluster, state: ClusterState, older: Sequence[Instance]) -> tuple[str, str]:
    """Return reason and message of a minor version skew within an image."""
    image, names = older[0].image, declared.names.instance
    found = minor_versions.by_version(state, image)
    reported = " and ".join(
        f"{version} in {', '.join(names(i.ordinal) for i in older_names)}" for version, older_names in found
    )
    reported = f"image {image} is {reported}"
    if any(minor_versions.should_recreate(declared, state, i) for i in older):
        return "Upgrading", f"{reported}: recreating the older instances"
    return "MinorVersionSkew", reported


def status_of(cluster: Cluster) -> ClusterStatus:
    """Return the status of a cluster, empty if it has none."""
    empty = MySQLClusterStatus if isinstance(cluster, MySQLCluster) else PostgreSQLClusterStatus
    return cluster.status or empty()


def with_observed_fields(
    previous: S,
    generation: int | None,
    phase: ClusterPhase,
    view_and_state: tuple[DeclaredCluster, ClusterState] | None,
) -> S:
    """Return the status with observed fields, without conditions and members.

    Without an observation the fields stay unchanged.

    Args:
        generation: the last generation that was reconciled.
    """
    if view_and_state is None:
        return msgspec.structs.replace(previous, phase=phase, observed_generation=generation)
    declared, state = view_and_state
    primary = state.primary
    member = None if primary is None else primary.member
    # The version decides about upgrades, so a foreign pod must not set it.
    version = member.version if member is not None and primary is not None and primary.is_controlled else ""
    ready = [i for i in state.instances if i.pod_ready and not i.fenced]
    return msgspec.structs.replace(
        previous,
        observed_generation=generation,
        phase=phase,
        instances=len(state.instances),
        ready_instances=len(ready),
        selector=",".join(f"{name}={value}" for name, value in instances_selector(declared.names).items()),
        primary=None if primary is None else declared.names.instance(primary.ordinal),
        version=version or previous.version,
        data_identity=served_identity(state) or previous.data_identity,
        image=(primary.image if primary is not None else "") or previous.image,
        storage=storage_status(state),
        secrets=ClusterSecrets(
            administrator=declared.names.administrator_secret.name,
            application=declared.names.application_secret.name if declared.has_bootstrap_database else None,
            ca=declared.names.server_certificate.name,
        ),
    )


def build_member(declared: DeclaredCluster, state: ClusterState, instance: Instance) -> ClusterMember:
    """Return the status of an instance, without the fields of its engine."""
    member, primary = instance.member, state.primary
    is_primary = primary is not None and primary.ordinal == instance.ordinal
    is_replica = member is not None and member.role == "Replica" and instance.pod is not None
    return ClusterMember(
        name=declared.names.instance(instance.ordinal),
        role="Primary" if is_primary else "Replica" if is_replica else None,
        state=None if member is None or instance.pod is None else member.state,
        node=None if instance.pod is None else instance.pod.spec.node_name,
        ready=instance.pod_ready and not instance.fenced,
        pending_restart=True if member is not None and member.pending_restart else None,
        fenced=True if instance.fenced else None,
    )


def set_ready(
    cluster: Cluster, declared: DeclaredCluster, action: Action | Wait | None, conditions: ConditionSet
) -> None:
    """Evaluate Ready from the next action and from all other conditions."""
    pending_messages = [*conditions.updates.values(), *_previous_updates(cluster, conditions)]
    problems = [
        f
        for f in pending_messages
        if not f.holds and f.reason not in _INFORMATIONAL and f.type not in INDEPENDENT_CONDITIONS
    ]
    was_provisioned = cluster.status.phase in _WAS_PROVISIONED
    if isinstance(action, Wait):
        conditions.set("Ready", False, action.reason, action.message)
    elif action is not None:
        conditions.set("Ready", False, "RollingOut" if was_provisioned else "Creating", describe(declared, action))
    elif problems:
        reason = "Degraded" if was_provisioned or any(f.holds is False for f in problems) else "Creating"
        if all(f.reason in _PROGRESSING for f in problems):
            reason = "RollingOut" if was_provisioned else "Creating"
        conditions.set("Ready", False, reason, "; ".join(f"{f.type}: {f.message}" for f in problems))
    else:
        conditions.set("Ready", True, "AllInstancesReady", f"all {declared.instances} instances are ready")
    storage = conditions.updates.get("StorageSufficient")
    if storage is not None and storage.reason == "DiskFull" and (action is None or isinstance(action, Wait)):
        conditions.set("Ready", False, "DiskFull", storage.message)


def _previous_updates(cluster: Cluster, conditions: ConditionSet) -> Sequence[ConditionUpdate]:
    """Return the previous conditions that were not evaluated."""
    previous = cluster.status.conditions
    known = conditions.updates.keys() | conditions.removed | {"Ready", "Paused"}
    return [_update_of(c) for c in previous if c.type not in known]


def add_member_error(declared: DeclaredCluster, state: ClusterState, conditions: ConditionSet) -> None:
    """Add the failing operation of an instance to the condition Ready.

    It is added if no other cause is known.
    """
    ready = conditions.updates.get("Ready")
    failing = next((m for m in state.members.members if m.failing_operation and state.instance(m.instance)), None)
    if ready is None or failing is None or not (ready.holds or ready.reason in _EXPLAINABLE):
        return
    detail = f"{declared.names.instance(failing.instance)}: {failing.failing_operation}"
    reason = ready.reason if ready.reason in ("Degraded", "NoPrimary") else "MemberError"
    conditions.set("Ready", False, reason, detail if ready.holds else f"{ready.message}; {detail}")


_EXPLAINABLE = frozenset({"Creating", "Degraded", "InstanceNotReady", "NoPrimary"})
"""Reasons of Ready that do not name the failing operation."""
_INFORMATIONAL = frozenset(
    {"Expiring", "MinorUpgradeAvailable", "MinorVersionSkew", "RunningLow", "WaitingForRing", "WaitingForWindow"}
)
"""Reasons of false conditions that are not a problem yet.

Users can act later.
"""
_PROGRESSING = frozenset(
    {
        "FileSystemResizePending",
        "LoweringParameter",
        "Resizing",
        "RestartPending",
        "Restoring",
        "RollingOut",
        "Upgrading",
        "WaitingForBackup",
    }
)
"""Reasons of states that end without an action of the user."""
