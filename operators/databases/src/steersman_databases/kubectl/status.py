"""The command `status`: a cluster, its members and its problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.table import Table

from steersman.client import Client
from steersman.meta import Condition, FrozenStruct, ObjectKey, encode
from steersman_databases.api import Cluster
from steersman_databases.api.autopilot.maintenance import PendingDisruption
from steersman_databases.api.cluster_common import ClusterMember, LastSwitchover
from steersman_databases.api.group import is_paused
from steersman_databases.api.mysql_cluster import ForceRecovery, MySQLClusterStatus, MySQLMember, OutageStatus
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterStatus, PostgreSQLMember
from steersman_databases.api.reasons import advice_for
from steersman_databases.core.sizes import format_bytes
from steersman_databases.kubectl.lookup import all_clusters, find_cluster
from steersman_databases.kubectl.tables import plain_table, print_table


class ReportedProblem(FrozenStruct):
    """A condition with a problem."""

    condition: str
    reason: str
    message: str
    next_step: str


class ClusterReport(FrozenStruct):
    """Summary of a cluster."""

    namespace: str
    name: str
    phase: str
    instances: int
    ready_instances: int
    primary: str | None
    version: str | None
    timeline: int | None
    image: str | None
    available_image: str | None
    paused: bool
    members: tuple[ClusterMember, ...]
    last_switchover: LastSwitchover | None
    next_window: datetime | None
    pending_disruptions: tuple[PendingDisruption, ...]
    outage: OutageStatus | None
    problems: tuple[ReportedProblem, ...]


async def load_clusters(client: Client, namespace: str) -> tuple[ClusterReport, ...]:
    """Return the clusters of a namespace, or of all namespaces.

    An empty name means all.
    """
    return tuple(report(each) for each in await all_clusters(client, namespace))


async def load_cluster(client: Client, key: ObjectKey) -> ClusterReport:
    """Return one cluster. Raises NotFound."""
    return report(await find_cluster(client, key))


def report(cluster: Cluster) -> ClusterReport:
    """Return the summary of an object's status, in order of importance."""
    status, kind = cluster.status, type(cluster).api_resource.kind
    return ClusterReport(
        namespace=cluster.metadata.namespace,
        name=cluster.metadata.name,
        phase=status.phase or "Pending",
        instances=cluster.spec.instances,
        ready_instances=status.ready_instances or 0,
        primary=status.primary,
        version=status.version,
        timeline=status.timeline if isinstance(status, PostgreSQLClusterStatus) else None,
        image=status.image,
        available_image=status.available_image,
        paused=is_paused(cluster),
        members=tuple(sorted(status.members, key=lambda m: (m.role != "Primary", m.name))),
        last_switchover=status.last_switchover,
        next_window=status.next_window,
        pending_disruptions=status.pending_disruptions,
        outage=status.outage if isinstance(status, MySQLClusterStatus) else None,
        problems=tuple(
            sorted(_problems(kind, status.conditions), key=lambda p: (p.condition != "Ready", p.condition))
        ),
    )


_PROBLEM_WHEN_TRUE = frozenset({"Paused"})
_INFORMATIONAL_REASONS = frozenset({"MinorUpgradeAvailable", "WaitingForRing", "WaitingForWindow"})
_CONSENT_REASONS = frozenset({"ConsentRequired", "ConsentMismatch"})


def _problems(kind: str, conditions: Iterable[Condition]) -> Iterable[ReportedProblem]:
    for condition in conditions:
        good = "False" if condition.type in _PROBLEM_WHEN_TRUE else "True"
        if condition.status != good and condition.reason not in _INFORMATIONAL_REASONS:
            advice = advice_for(kind, condition.type, condition.reason)
            yield ReportedProblem(
                condition=condition.type, reason=condition.reason, message=condition.message, next_step=advice
            )


def show_all(reports: Sequence[ClusterReport], *, everywhere: bool) -> None:
    """Print clusters as `kubectl get` does."""
    columns = ["NAME", "INSTANCES", "READY", "PRIMARY", "VERSION", "PHASE"]
    rows = [
        [r.name, str(r.instances), str(r.ready_instances), r.primary or "", r.version or "", _phase(r)]
        for r in reports
    ]
    if everywhere:
        columns.insert(0, "NAMESPACE")
        rows = [[r.namespace, *row] for r, row in zip(reports, rows, strict=True)]
    print_table(plain_table(columns, rows))


def show(report: ClusterReport) -> None:
    """Print a cluster: facts, members below their primary, problems with next steps."""
    facts = [
        ("Cluster", f"{report.namespace}/{report.name}"),
        ("Phase", _phase(report)),
        ("Instances", f"{report.ready_instances} of {report.instances} ready"),
        ("Version", report.version or "unknown"),
        ("Image", report.image or "unknown"),
        ("Newer", report.available_image if report.available_image != report.image else None),
        ("Switchover", _last_switchover(report.last_switchover)),
        ("Window", None if report.next_window is None else f"{report.next_window:%Y-%m-%d %H:%M:%S} UTC"),
        ("Pending", "; ".join(f"{one.instance}: {one.reason}" for one in report.pending_disruptions)),
    ]
    print_table(_facts((name, value) for name, value in facts if value))
    print_table("")
    if report.members:
        columns = ["INSTANCE", "ROLE", "STATE", "READY", "LAG", "TIMELINE", "NODE", "NOTES"]
        print_table(plain_table(columns, _topology(report.members)))
    else:
        print_table("No instances yet.")
    for problem in report.problems:
        print_table("")
        print_table(f"{problem.condition}: {problem.reason}")
        if problem.message:
            print_table(f"  {problem.message}")
        if problem.next_step and problem.next_step not in problem.message:
            print_table(f"  Next: {problem.next_step}")
        for consent in _recovery_snippets(report.outage) if problem.reason in _CONSENT_REASONS else ():
            print_table(f"  spec.forceRecovery: {consent}")


def _recovery_snippets(outage: OutageStatus | None) -> list[str]:
    """Return snippets to copy: each continues with the data of one instance."""
    if outage is None:
        return []
    recoveries = (ForceRecovery(epoch=outage.epoch, instance=c.instance, loss=c.loss) for c in outage.choices)
    return [encode(each).decode() for each in recoveries]


def _topology(members: Sequence[ClusterMember]) -> list[list[str]]:
    """Return the primary with its replicas as branches."""
    leads = members[0].role == "Primary"
    rows: list[list[str]] = []
    for number, member in enumerate(members):
        branch = "" if not leads or number == 0 else "└─ " if number == len(members) - 1 else "├─ "
        rows.append(
            [
                branch + member.name,
                _role(member),
                member.state or "",
                {True: "yes", False: "no", None: ""}[member.ready],
                _lag(member),
                str(member.timeline or "") if isinstance(member, PostgreSQLMember) else "",
                member.node or "",
                _notes(member),
            ]
        )
    return rows


def _role(member: ClusterMember) -> str:
    synchronous = isinstance(member, PostgreSQLMember) and member.synchronous
    return f"{member.role or ''}{' (sync)' if synchronous else ''}"


def _lag(member: ClusterMember) -> str:
    if member.role == "Primary":
        return ""
    if isinstance(member, MySQLMember):
        return "" if member.apply_queue is None else f"{member.apply_queue} queued"
    lag = member.lag_bytes if isinstance(member, PostgreSQLMember) else None
    return "" if lag is None else format_bytes(lag)


def _notes(member: ClusterMember) -> str:
    errant = isinstance(member, MySQLMember) and member.errant_gtids
    notes = {
        "fenced": member.fenced,
        "restart pending": member.pending_restart,
        f"errant transactions {errant}": errant,
    }
    return ", ".join(note for note, given in notes.items() if given)


def _phase(report: ClusterReport) -> str:
    return f"{report.phase} (paused)" if report.paused else report.phase


def _last_switchover(last: LastSwitchover | None) -> str | None:
    if last is None or last.outcome is None:
        return None
    when = "" if last.time is None else f", {last.time:%Y-%m-%d %H:%M:%S} UTC"
    if last.outcome == "Succeeded":
        return f"from {last.former} to {last.to}{when}"
    return f"to {last.to} {last.outcome.replace('Requested', 'requested')}{when}"


def _facts(facts: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts:
        table.add_row(f"{name}:", value)
    return table
