"""The status of a cluster: what is seen of it, and how far it is from what is declared."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, TypeVar

import msgspec

from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import Pod
from steersman.meta import Condition, FrozenDict, ObjectKey, find_condition, set_condition
from steersman_databases.api import Cluster, ClusterStatus, MySQLCluster, MySQLClusterStatus, PostgreSQLClusterStatus
from steersman_databases.api.cluster_parts import ClusterMember, ClusterPhase, ClusterSecrets
from steersman_databases.api.conditions import MYSQL_CLUSTER, next_step
from steersman_databases.clusters import minors
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.clusters.parameters import lowers
from steersman_databases.clusters.steps import Step, Wait, words_of
from steersman_databases.clusters.trouble import trouble_in
from steersman_databases.controllers.failures import REASONS
from steersman_databases.controllers.outcome import shortened
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL

S = TypeVar("S", bound=ClusterStatus)

News = tuple[str, str]
"""An Event's reason and message."""

_ORDER = {type_: number for number, type_ in enumerate(MYSQL_CLUSTER)}
ALARMING = REASONS | frozenset(
    {
        "AdministratorSecretMissing",
        "Claimed",
        "ConsentMismatch",
        "ConsentNeeded",
        "DiskFull",
        "Failed",
        "Failover",
        "ErrantTransactions",
        "Expiring",
        "FailingOver",
        "ImageUnavailable",
        "InstanceCrashing",
        "InstanceFailing",
        "InstanceRefused",
        "JobRefused",
        "NameTaken",
        "NoMajority",
        "NoPrimary",
        "NoSynchronousStandby",
        "NotExpandable",
        "NotForAll",
        "NotShown",
        "NotTrusted",
        "OtherClass",
        "OwnerSecretInvalid",
        "ParameterRefused",
        "PoolerCrashing",
        "PoolersRefused",
        "PreCheckFailed",
        "RetainedDataMismatch",
        "RolledBack",
        "RunningLow",
        "SecretInvalid",
        "SwitchoverRefused",
        "Unschedulable",
        "UnsupportedVersion",
        "VolumeLost",
    }
)
"""Reasons that are Events of type Warning."""
_STATUS: dict[bool | None, Literal["True", "False", "Unknown"]] = {True: "True", False: "False", None: "Unknown"}
_HOLDS = {status: holds for holds, status in _STATUS.items()}


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition. `api.conditions` knows what to do about ``reason``; ``message`` is the clause before it.

    ``holds`` at None: it is not known yet.
    """

    type: str
    holds: bool | None
    reason: str
    message: str


@dataclass(slots=True)
class Findings:
    """What a reconcile found out, condition by condition; one that is not found is not declared, or not known yet."""

    found: dict[str, Finding] = field(default_factory=dict[str, Finding])
    absent: set[str] = field(default_factory=set[str])

    def tell(self, type_: str, holds: bool | None, reason: str, message: str) -> None:
        """Sets a condition."""
        self.found[type_] = Finding(type_, holds, reason, message)
        self.absent.discard(type_)

    def says(self, type_: str, reason: str) -> bool:
        """Whether a condition was found for this reason."""
        finding = self.found.get(type_)
        return finding is not None and finding.reason == reason

    def leave(self, type_: str, *, unless: str) -> None:
        """Keeps a condition as it was where all that was found is ``unless``."""
        if self.says(type_, unless):
            del self.found[type_]

    def tell_beside(self, reason: str, message: str) -> None:
        """Why it is not Ready, and what it waits for besides; one that sleeps does so nevertheless."""
        ready = self.found.get("Ready")
        if ready is None or ready.holds:
            self.tell("Ready", False, reason, message)
        elif ready.reason == "Hibernated":
            self.tell("Ready", False, ready.reason, f"{ready.message}; {message}")
        else:
            self.tell("Ready", False, reason, f"{message}; {ready.message}")

    def drop(self, type_: str) -> None:
        """Nothing is declared that this condition would be about."""
        self.absent.add(type_)
        self.found.pop(type_, None)


def conditions_of(
    cluster: Cluster, former: Sequence[Condition], findings: Findings, now: datetime
) -> tuple[Condition, ...]:
    """All conditions; those that this reconcile did not come to stay as they were."""
    conditions = tuple(c for c in former if c.type not in findings.absent)
    for finding in findings.found.values():
        advice = next_step(type(cluster).api_resource.kind, finding.type, finding.reason)
        message = f"{finding.message}: {advice}" if advice else finding.message
        condition = Condition(
            type=finding.type,
            status=_STATUS[finding.holds],
            reason=finding.reason,
            message=shortened(message),
            observed_generation=cluster.metadata.generation,
        )
        conditions = set_condition(conditions, condition, now)
    # In one order, whatever was found out first.
    return tuple(sorted(conditions, key=lambda c: _ORDER.get(c.type, len(_ORDER))))


def news(former: Sequence[Condition], conditions: Sequence[Condition]) -> Sequence[News]:
    """The conditions whose reason or status was another before, or which are new."""
    old = {c.type: (c.status, c.reason) for c in former}
    return [(c.reason, c.message) for c in conditions if old.get(c.type) != (c.status, c.reason)]


def judge_available(view: ClusterView, observed: Observed, findings: Findings) -> None:
    """Whether somebody takes writes."""
    primary = observed.primary
    if primary is not None and primary.pod_ready:
        findings.tell("Available", True, "PrimaryAccepts", f"{view.names.instance(primary.number)} takes writes")
    elif view.hibernated:
        findings.tell("Available", False, "Hibernated", "the cluster is hibernated")
    elif observed.instances and all(i.fenced for i in observed.instances):
        findings.tell("Available", False, "Fenced", "all instances are fenced")
    elif any(i.pod_ready for i in observed.instances):
        findings.tell("Available", False, "FailingOver", "the instances choose another primary")
    else:
        findings.tell("Available", False, "NoPrimary", "no instance takes writes")


def judge_ending(view: ClusterView, observed: Observed, findings: Findings) -> None:
    """Whether somebody still takes writes while the cluster is being deleted: that nobody does is as it should be."""
    judge_available(view, observed, findings)
    if not findings.found["Available"].holds:
        findings.tell("Available", False, "Deleting", "the cluster is being deleted")


def judge_trust(view: ClusterView, observed: Observed, strangers: Container[str], findings: Findings) -> None:
    """Whether the instances know those who sign now; ``strangers`` are the UIDs of pods that do not."""
    pods = {view.names.instance(i.number): i.pod for i in observed.instances if i.pod is not None}
    names = [name for name, pod in pods.items() if pod.metadata.uid in strangers]
    if names:
        message = f"{', '.join(names)} and the authorities in the Secrets do not know each other"
        findings.tell("CertificatesValid", False, "NotTrusted", message)


def judge_storage(view: ClusterView, observed: Observed, findings: Findings) -> None:
    """Whether there is room on the volumes, as far as the instances tell."""
    members = observed.members.members
    used = [(f"{v}-{view.names.instance(m.instance)}", level) for m in members for v, level in m.storage.items()]
    low = sorted(((claim, level) for claim, level in used if level), key=lambda each: -each[1])
    if not used:
        findings.drop("StorageSufficient")
    elif not low:
        findings.tell("StorageSufficient", True, "Sufficient", "there is room on all volumes")
    else:
        reason = "DiskFull" if any(m.full for m in members) else "RunningLow"
        said = [f"{claim} is {f'over {level} % ' if level < 100 else ''}full" for claim, level in low]
        findings.tell("StorageSufficient", False, reason, f"volume {', '.join(said)}")


def judge_parameters(observed: Observed, findings: Findings) -> None:
    """Whether all servers run with what is configured."""
    pending = {p.name for m in observed.members.members if m.pending_restart for p in m.pending}
    if any(lowers(m) for m in observed.members.members if m.pending_restart):
        message = f"servers restart for {', '.join(sorted(pending))}, the primary first: no replica may have less"
        findings.tell("ParametersApplied", False, "Lowering", message)
    elif pending or any(m.pending_restart for m in observed.members.members):
        findings.tell(
            "ParametersApplied", False, "RestartPending", f"servers restart for {', '.join(sorted(pending))}".rstrip()
        )
    elif observed.members.settings is not None:
        findings.tell("ParametersApplied", True, "Applied", "all servers run with what is declared")


class Unmade(NamedTuple):
    """Why there are no poolers where some are declared."""

    reason: str
    words: str


def judge_poolers(
    deployments: Mapping[ObjectKey, Deployment | Unmade], pods: Sequence[Pod], findings: Findings
) -> None:
    """Whether all poolers take connections. ``pods`` are theirs, of both Deployments."""
    if not deployments:
        findings.drop("PoolersReady")
        return
    found = [
        (deployment.reason, f"no poolers of {key.name}: {deployment.words}")
        if isinstance(deployment, Unmade)
        else _pooling(deployment, pods)
        for key, deployment in deployments.items()
    ]
    found = [judged for judged in found if judged is not None]
    if not found:
        findings.tell("PoolersReady", True, "Serving", "all poolers take connections")
        return
    # What somebody has to mend before what goes on by itself.
    reason = min((reason for reason, _ in found), key=lambda r: r in ("RollingOut", "PoolerNotReady"))
    findings.tell("PoolersReady", False, reason, "; ".join(words for _, words in found))


def _pooling(deployment: Deployment, pods: Sequence[Pod]) -> tuple[str, str] | None:
    """Reason and words of what is the matter with the poolers of one Service."""
    wanted, status = deployment.spec.replicas or 0, deployment.status
    ready, updated = status.ready_replicas or 0, status.updated_replicas or 0
    told = f"{deployment.metadata.name} has {ready} of {wanted} poolers ready"
    selector = deployment.spec.selector
    wanted_labels = FrozenDict[str, str]() if selector is None else selector.match_labels
    own = (pod for pod in pods if wanted_labels.items() <= pod.metadata.labels.items())
    if trouble := next((found for pod in own if (found := trouble_in(pod))), None):
        reason = "PoolerCrashing" if trouble.reason == "InstanceCrashing" else trouble.reason
        return reason, f"{told}: {trouble.message}"
    refused = (c for c in status.conditions if c.type == "ReplicaFailure" and c.status == "True")
    if condition := next(refused, None):
        return "PoolersRefused", f"{told}: {condition.message or condition.reason}"
    old = (status.observed_generation or 0) < (deployment.metadata.generation or 0)
    if old or updated < wanted or (status.replicas or 0) > wanted:
        return "RollingOut", told
    return None if ready >= wanted else ("PoolerNotReady", told)


def phase_of(cluster: Cluster, findings: Findings) -> ClusterPhase:
    """One word for all of it. Where nobody looked whether it is Ready, since it is paused, it is as it was."""
    ready, available = findings.found.get("Ready") or _was_ready(cluster), findings.found.get("Available")
    if ready is not None and ready.holds and (available is None or available.holds):
        return "Ready"
    if ready is not None and ready.reason == "Hibernated":
        return "Hibernated"
    serves = available is not None and available.holds
    if any(
        f.reason in _NEEDS_A_PERSON and not (serves and f.reason == "NameTaken")
        for f in findings.found.values()
        if f.type in ("Ready", "Recoverable")
    ):
        return "Failed"
    if ready is not None and ready.reason in _NEEDS_THE_CLUSTER:
        return "Pending"
    begun = cluster.status.phase in _ONCE_READY
    made = all(f.holds for f in findings.found.values() if f.type in _MADE_FIRST)
    return "Degraded" if begun or (made and ready is not None and ready.reason == "Degraded") else "Provisioning"


def _was_ready(cluster: Cluster) -> Finding | None:
    ready = find_condition(cluster.status.conditions, "Ready")
    return None if ready is None else _finding_of(ready)


def _finding_of(condition: Condition) -> Finding:
    return Finding(condition.type, _HOLDS[condition.status], condition.reason, condition.message)


_NEEDS_A_PERSON = frozenset(
    {
        "AdministratorSecretMissing",
        "ConsentMismatch",
        "ConsentNeeded",
        "InstanceCrashing",
        "NameTaken",
        "RetainedDataMismatch",
        "SecretInvalid",
        "UnsupportedVersion",
    }
)
_NEEDS_THE_CLUSTER = frozenset({"Unschedulable", "ImageUnavailable", "InstanceRefused"})
_MADE_FIRST = frozenset({"Available", "Synchronous", "InitialDatabase", "InitialConfiguration", "PoolersReady"})
"""Conditions that hold before a new cluster is made."""
_ONCE_READY = ("Ready", "Degraded", "Failed", "Hibernated")


def judge_upgraded(view: ClusterView, observed: Observed, available: str, findings: Findings) -> None:
    """Whether the operator has a newer image of this version than the one that runs, or that one is of two minors."""
    running = observed.primary.image if observed.primary is not None else ""
    as_named = view.image_given or running == available
    if running and as_named and (behind := minors.behind(observed)):
        findings.tell("Upgraded", False, *_behind(view, observed, behind))
    elif view.image_given or not running:
        findings.drop("Upgraded")
    elif as_named:
        findings.tell("Upgraded", True, "Current", f"{running} is the operator's image of {view.version}")
    elif view.upgrades_minor:
        findings.tell("Upgraded", False, "Upgrading", f"{available} takes the place of {running}")
    else:
        findings.tell("Upgraded", False, "MinorAvailable", f"{available} is there, and {running} runs")


def _behind(view: ClusterView, observed: Observed, behind: Sequence[Instance]) -> tuple[str, str]:
    """Reason and words of members that are older than others of their image."""
    image, names = behind[0].image, view.names.instance
    found = minors.by_version(observed, image)
    told = " and ".join(f"{version} in {', '.join(names(i.number) for i in those)}" for version, those in found)
    told = f"{image} is {told}"
    if any(minors.catches_up(view, observed, i) for i in behind):
        return "Upgrading", f"{told}: who is older is made anew"
    return "MinorsDiffer", told


def status_of(cluster: Cluster) -> ClusterStatus:
    """Its status; an empty one before it has any."""
    empty = MySQLClusterStatus if isinstance(cluster, MySQLCluster) else PostgreSQLClusterStatus
    return cluster.status or empty()


def advanced(former: S, generation: int | None, phase: ClusterPhase, seen: tuple[ClusterView, Observed] | None) -> S:
    """The status but for conditions, members and what is a kind's own: as observed, or as it was where nothing is.

    Args:
        generation: what was acted upon last.
    """
    if seen is None:
        return msgspec.structs.replace(former, phase=phase, observed_generation=generation)
    view, observed = seen
    primary = observed.primary
    member = None if primary is None else primary.member
    # An upgrade follows from the version, so a stranger's pod must not have a say in it.
    version = member.version if member is not None and primary is not None and primary.is_own else ""
    ready = [i for i in observed.instances if i.pod_ready and not i.fenced]
    return msgspec.structs.replace(
        former,
        observed_generation=generation,
        phase=phase,
        instances=len(observed.instances),
        ready_instances=len(ready),
        selector=f"{MEMBER_OF_LABEL}={view.key.name}",
        primary=None if primary is None else view.names.instance(primary.number),
        version=version or former.version,
        image=(primary.image if primary is not None else "") or former.image,
        secrets=ClusterSecrets(
            administrator=view.names.administrator_secret.name,
            application=view.names.application_secret.name if view.has_database else None,
            ca=view.names.server_certificate.name,
        ),
    )


def member_of(view: ClusterView, observed: Observed, instance: Instance) -> ClusterMember:
    """An instance as its cluster's status shows it, but for what its engine adds."""
    member, primary = instance.member, observed.primary
    is_primary = primary is not None and primary.number == instance.number
    is_replica = member is not None and member.role == "Replica" and instance.pod is not None
    return ClusterMember(
        name=view.names.instance(instance.number),
        role="Primary" if is_primary else "Replica" if is_replica else None,
        state=None if member is None or instance.pod is None else member.state,
        node=None if instance.pod is None else instance.pod.spec.node_name,
        ready=instance.pod_ready and not instance.fenced,
        pending_restart=True if member is not None and member.pending_restart else None,
        fenced=True if instance.fenced else None,
    )


def describe(cluster: Cluster, view: ClusterView, step: Step | Wait | None, findings: Findings) -> None:
    """The condition Ready, from what is to be done next, and from all other conditions as they will be told."""
    told = [*findings.found.values(), *_kept(cluster, findings)]
    troubled = [f for f in told if not f.holds and f.reason not in _STILL_AS_DECLARED]
    begun = cluster.status.phase in _ONCE_READY
    if isinstance(step, Wait):
        findings.tell("Ready", False, step.reason, step.message)
    elif step is not None:
        findings.tell("Ready", False, "RollingOut" if begun else "Creating", words_of(view, step))
    elif troubled:
        reason = "Degraded" if begun or any(f.holds is False for f in troubled) else "Creating"
        if all(f.reason in _UNDER_WAY for f in troubled):
            reason = "RollingOut" if begun else "Creating"
        findings.tell("Ready", False, reason, "; ".join(f"{f.type}: {f.message}" for f in troubled))
    else:
        findings.tell("Ready", True, "ClusterReady", f"all {view.instances} instances are as declared")
    storage = findings.found.get("StorageSufficient")
    if storage is not None and storage.reason == "DiskFull" and (step is None or isinstance(step, Wait)):
        findings.tell("Ready", False, "DiskFull", storage.message)


def _kept(cluster: Cluster, findings: Findings) -> Sequence[Finding]:
    """What was told before of conditions that this reconcile did not come to."""
    former = cluster.status.conditions
    known = findings.found.keys() | findings.absent | {"Ready", "Paused"}
    return [_finding_of(c) for c in former if c.type not in known]


def explain(view: ClusterView, observed: Observed, findings: Findings) -> None:
    """Adds to the condition Ready what an instance tries in vain, where nothing else is known to be the matter."""
    ready = findings.found.get("Ready")
    failing = next((m for m in observed.members.members if m.failing and observed.instance(m.instance)), None)
    if ready is None or failing is None or not (ready.holds or ready.reason in _WAITS):
        return
    words = f"{view.names.instance(failing.instance)}: {failing.failing}"
    reason = ready.reason if ready.reason in ("Degraded", "NoPrimary") else "InstanceFailing"
    findings.tell("Ready", False, reason, words if ready.holds else f"{ready.message}; {words}")


_WAITS = frozenset({"Creating", "Degraded", "InstanceNotReady", "NoPrimary"})
"""Reasons of Ready that do not say what an instance tries."""
_STILL_AS_DECLARED = frozenset({"Expiring", "MinorAvailable", "MinorsDiffer", "RunningLow"})
"""Why a condition may be false although all is as declared: somebody has time to do something."""
_UNDER_WAY = frozenset(
    {"FileSystemResizePending", "Lowering", "Resizing", "RestartPending", "RollingOut", "Upgrading"}
)
"""Reasons of what becomes as declared by itself."""
