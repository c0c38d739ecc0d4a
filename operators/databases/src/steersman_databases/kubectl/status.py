"""``status``: what a cluster is, who its members are, and what is not as it should be."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer
from rich.console import Console
from rich.table import Table

from steersman.client import Client
from steersman.meta import Condition, FrozenStruct, ObjectKey, encode
from steersman_databases.api import Cluster
from steersman_databases.api.cluster_parts import ClusterMember, LastSwitchover
from steersman_databases.api.conditions import next_step
from steersman_databases.api.group import is_paused
from steersman_databases.api.mysql_cluster import MySQLClusterStatus, MySQLMember, Outage, Recovery
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterStatus, PostgreSQLMember
from steersman_databases.kubectl.found import all_clusters, find_cluster

_AS_NO_FILE = 500
"""What is read by a program has no edge to break at."""


class Problem(FrozenStruct):
    """A condition that is not as it should be."""

    condition: str
    reason: str
    message: str
    next_step: str


class ClusterReport(FrozenStruct):
    """A cluster at a glance."""

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
    outage: Outage | None
    problems: tuple[Problem, ...]


async def clusters(client: Client, namespace: str) -> tuple[ClusterReport, ...]:
    """All clusters of a namespace, or, where it is empty, of all."""
    return tuple(report(each) for each in await all_clusters(client, namespace))


async def cluster(client: Client, key: ObjectKey) -> ClusterReport:
    """One cluster. Raises NotFound."""
    return report(await find_cluster(client, key))


def report(cluster: Cluster) -> ClusterReport:
    """What stands in the object's status, in the order in which people ask for it."""
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
        outage=status.outage if isinstance(status, MySQLClusterStatus) else None,
        problems=tuple(
            sorted(_problems(kind, status.conditions), key=lambda p: (p.condition != "Ready", p.condition))
        ),
    )


_BAD_WHEN_TRUE = frozenset({"Paused"})
_NEWS = frozenset({"MinorAvailable"})
_ASKS_FOR_CONSENT = frozenset({"ConsentNeeded", "ConsentMismatch"})


def _problems(kind: str, conditions: Iterable[Condition]) -> Iterable[Problem]:
    for condition in conditions:
        good = "False" if condition.type in _BAD_WHEN_TRUE else "True"
        if condition.status != good and condition.reason not in _NEWS:
            advice = next_step(kind, condition.type, condition.reason)
            yield Problem(
                condition=condition.type, reason=condition.reason, message=condition.message, next_step=advice
            )


def show_all(reports: Sequence[ClusterReport], *, everywhere: bool) -> None:
    """Prints clusters as ``kubectl get`` does."""
    columns = ["NAME", "INSTANCES", "READY", "PRIMARY", "VERSION", "PHASE"]
    rows = [
        [r.name, str(r.instances), str(r.ready_instances), r.primary or "", r.version or "", _phase(r)]
        for r in reports
    ]
    if everywhere:
        columns.insert(0, "NAMESPACE")
        rows = [[r.namespace, *row] for r, row in zip(reports, rows, strict=True)]
    _print(_table(columns, rows))


def show(report: ClusterReport) -> None:
    """Prints one cluster: facts, members below their primary, and problems with what to do."""
    facts = [
        ("Cluster", f"{report.namespace}/{report.name}"),
        ("Phase", _phase(report)),
        ("Instances", f"{report.ready_instances} of {report.instances} ready"),
        ("Version", report.version or "unknown"),
        ("Image", report.image or "unknown"),
        ("Newer", report.available_image if report.available_image != report.image else None),
        ("Switchover", _switchover(report.last_switchover)),
    ]
    _print(_facts((name, value) for name, value in facts if value))
    _print("")
    if report.members:
        columns = ["INSTANCE", "ROLE", "STATE", "READY", "LAG", "TIMELINE", "NODE", "NOTES"]
        _print(_table(columns, _topology(report.members)))
    else:
        _print("No instance is known yet.")
    for problem in report.problems:
        _print("")
        _print(f"{problem.condition}: {problem.reason}")
        if problem.message:
            _print(f"  {problem.message}")
        if problem.next_step and problem.next_step not in problem.message:
            _print(f"  Next: {problem.next_step}")
        for consent in _consents(report.outage) if problem.reason in _ASKS_FOR_CONSENT else ():
            _print(f"  spec.recovery: {consent}")


def _consents(outage: Outage | None) -> list[str]:
    """What a person may copy: to go on with the data of one instance each."""
    if outage is None:
        return []
    recoveries = (Recovery(epoch=outage.epoch, instance=c.instance, loss=c.loss) for c in outage.choices)
    return [encode(each).decode() for each in recoveries]


def _topology(members: Sequence[ClusterMember]) -> list[list[str]]:
    """The primary, and who follows it as its branches."""
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
        return "" if member.queued is None else f"{member.queued} queued"
    lag = member.lag_bytes if isinstance(member, PostgreSQLMember) else None
    return "" if lag is None else _bytes(lag)


def _notes(member: ClusterMember) -> str:
    errant = isinstance(member, MySQLMember) and member.errant
    notes = {
        "fenced": member.fenced,
        "restart pending": member.pending_restart,
        f"has {errant}, which the group has not": errant,
    }
    return ", ".join(note for note, given in notes.items() if given)


def _phase(report: ClusterReport) -> str:
    return f"{report.phase} (paused)" if report.paused else report.phase


def _switchover(last: LastSwitchover | None) -> str | None:
    if last is None or last.outcome is None:
        return None
    when = "" if last.time is None else f", {last.time:%Y-%m-%d %H:%M:%S} UTC"
    if last.outcome == "Succeeded":
        return f"from {last.former} to {last.to}{when}"
    return f"to {last.to} {last.outcome.replace('Requested', 'requested')}{when}"


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _facts(facts: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts:
        table.add_row(f"{name}:", value)
    return table


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """As kubectl's: no lines, three blanks between columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="")
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _print(what: Table | str) -> None:
    width = None if sys.stdout.isatty() else _AS_NO_FILE
    console = Console(width=width, soft_wrap=isinstance(what, str), highlight=False, markup=False)
    if isinstance(what, str):
        console.print(what)
        return
    with console.capture() as capture:
        console.print(what)
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())
