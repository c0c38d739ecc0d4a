"""Servers that must restart for a parameter, in an order in which no standby falls behind what its primary needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

from steersman.meta import Quantity
from steersman_databases.clusters import failing, rollout
from steersman_databases.clusters.handover import hand_over
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.clusters.steps import RestartServer, Step, Wait
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.topology import Member

STANDBY_SENSITIVE = frozenset(
    {
        "max_connections",
        "max_worker_processes",
        "max_wal_senders",
        "max_prepared_transactions",
        "max_locks_per_transaction",
    }
)
"""Of these a standby must never have less than its primary. Source: PostgreSQL, "Hot Standby", "Administrator's"."""


def restart(cluster: ClusterView, observed: Observed) -> Step | Wait | None:
    """The next server that has to restart for a parameter; all are well when this is asked, or `keeps_out` holds."""
    pending = [i for i in observed.instances if i.member is not None and i.member.pending_restart]
    if not pending:
        return None
    primary = observed.members.primary
    assert primary is not None
    replicas = [i for i in pending if i.number != primary.instance]
    if primary.pending_restart and lowers(primary):
        if behind := [i for i in replicas if i.member is not None and _raises(i.member)]:
            return RestartServer(behind[0].number, "a parameter is raised before another one is lowered")
        # A replica that restarts earlier starts with the old value, and a switchover brings that back to all.
        return RestartServer(primary.instance, "a parameter is lowered")
    if replicas:
        return RestartServer(replicas[0].number, "a parameter needs it")
    to = rollout.successors(cluster, observed)
    because = "a parameter needs a restart"
    return hand_over(cluster, observed, to, because) if to else RestartServer(primary.instance, because)


def lowers(member: Member) -> bool:
    """Whether the restart that ``member`` waits for makes less of what its standbys must not have less of."""
    return any(p.name in STANDBY_SENSITIVE and _less(p.value, p.former) for p in member.pending)


def is_lowering(observed: Observed) -> bool:
    """Whether the primary has restarted for less, and somebody else has not: as the primary he would undo it."""
    primary, members = observed.members.primary, observed.members.members
    return primary is not None and not lowers(primary) and any(map(lowers, members))


def _raises(member: Member) -> bool:
    return any(p.name in STANDBY_SENSITIVE and _less(p.former, p.value) for p in member.pending)


def too_large(
    cluster: ClusterView, held: Callable[[str, str], int | None], observed: Observed | None = None
) -> Mapping[str, str]:
    """Parameters for which a server would take all memory that its container may have, and would be killed for it.

    Args:
        held: bytes that a server takes for a parameter of a value; None where that cannot be told.
        observed: containers that run have the limits that they were made with, and may not have the present ones yet.
    """
    limits = [limit for each in _limits(cluster, observed) if (limit := _memory(each)) is not None]
    if not limits:
        return {}
    most, words = min(limits)
    return {
        name: f'parameter "{name}" = {value} leaves nothing of the limit of {words} that an instance has'
        for name, value in cluster.parameters.items()
        if (wanted := held(name, value)) is not None and wanted >= most
    }


def _limits(cluster: ClusterView, observed: Observed | None) -> Iterator[Mapping[str, int | str]]:
    yield cluster.pods.resources.limits
    for instance in () if observed is None else observed.instances:
        for container in () if instance.pod is None else instance.pod.spec.containers[:1]:
            yield container.resources.limits


def _memory(limits: Mapping[str, int | str]) -> tuple[Decimal, str] | None:
    """In bytes and in words, huge pages counted; None where nothing is limited."""
    if "memory" not in limits:
        return None
    given = [Quantity(str(n)) for name, n in limits.items() if name == "memory" or name.startswith("hugepages-")]
    return sum((each.value for each in given), Decimal()), " + ".join(map(str, given))


_TAKEN_BY_COPY = {"max_wal_senders": 2, "max_replication_slots": 1}
"""What a copy takes on the primary. Source: PostgreSQL, "pg_basebackup", ``--wal-method`` and ``--no-slot``."""


def keeps_out(observed: Observed, instance: Instance) -> bool:
    """Whether a replica may lack to follow what the primary has more of after the restart that it waits for.

    It has run for long without following, or copies where so many follow that none can be made.
    """
    primary, member = observed.members.primary, instance.member
    if primary is None or member is None or member.role != "Replica":
        return False
    raised = {p.name: int(p.former) for p in primary.pending if p.name in _TAKEN_BY_COPY and _less(p.former, p.value)}
    if member.state != "Cloning":
        return bool(raised) and failing.strays(instance, observed)
    replicas = [m for m in observed.members.members if m is not primary]
    # A member has its slot from when it is known, and a sender while it streams.
    taken = {
        "max_wal_senders": sum(m.state == "Streaming" for m in replicas),
        "max_replication_slots": len(replicas),
    }
    return any(taken[name] + _TAKEN_BY_COPY[name] > former for name, former in raised.items())


_PRELOAD = "shared_preload_libraries"
# Beside Patroni's own names in its configuration: it takes those that it knows, and keeps the others as they are.
# Source: patroni/config.py of 4.0.7, Config._safe_copy_dynamic_configuration.
_RECORD = "steersman"


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A value that a server did not start with. ``former`` is written in its place for as long as it is declared.

    ``said``: it would not start, by what one says that runs.
    """

    name: str
    value: str
    former: str
    said: str = ""

    @property
    def words(self) -> str:
        """What happened."""
        instead = f"{self.former} is kept" if self.former else "it is left out"
        started = f'an instance did not start with parameter "{self.name}" = {self.value}'
        return f"{f'no instance would start: {self.said}' if self.said else started}; {instead}"


@dataclass(frozen=True, slots=True)
class Trials:
    """Values and how they fare: ``back`` are not to be tried, ``waiting`` are, as soon as a server restarts."""

    back: Sequence[GivenBack] = ()
    waiting: Sequence[GivenBack] = ()


def trials(cluster: ClusterView, observed: Observed) -> Trials:
    """The declared values that are not to be tried (found so before, or failing now), and those that wait.

    What waits is as the primary says, and stands in the store before anybody restarts: there it is found where the
    only server does not start, and nobody is left to say so. It failed where a server does not start and the primary,
    if there is one, has not restarted for it yet.
    """
    declared, settings = _declared(cluster), observed.members.settings or {}
    stored = written(cluster, settings)
    refused, waiting = (
        {
            n: GivenBack(n, r["value"], r["former"], r.get("said", ""))
            for n, r in recorded.items()
            if declared.get(n) == r["value"]
        }
        for recorded in (_recorded(settings, "refused"), _recorded(settings, "waiting"))
    )
    if (primary := observed.members.primary) is not None:
        pending = {p.name: p.former for p in primary.pending if p.name in declared}
        waiting = {name: GivenBack(name, declared[name], former) for name, former in pending.items()}
    # What was declared since is not what failed.
    tried = {name: one for name, one in waiting.items() if one.value == stored.get(name)}
    if any(_fails(m, primary) for m in observed.members.members):
        refused |= tried
    return Trials(
        [refused[name] for name in sorted(refused)], [tried[name] for name in sorted(tried) if name not in refused]
    )


def written(cluster: ClusterView, settings: Mapping[str, Any]) -> Mapping[str, str]:
    """The parameters that stand in the configuration of all members."""
    return cast(Mapping[str, str], settings.get(cluster.engine, {}).get("parameters", {}))


def with_unread(cluster: ClusterView, trials: Trials, unread: Mapping[str, tuple[str, str]]) -> Trials:
    """These, and what a server that runs has in its file and could not read: it would start without it.

    Args:
        unread: values and the server's words, by name.
    """
    found = [
        GivenBack(name, value, "", words)
        for name, (value, words) in sorted(unread.items())
        if cluster.parameters.get(name) == value
    ]
    return replace(trials, back=[*trials.back, *found])


def prevented(cluster: ClusterView, observed: Observed) -> str:
    """Why the first server of a new cluster does not start, in its words; empty where it may, or nobody knows.

    It has no former value to go back to. The parameters are those that it names, or all that are declared.
    """
    words = next((w for i in observed.instances if "FATAL:" in (w := i.last_words)), "")
    declared = _declared(cluster)
    if observed.members.initialized or not words or not declared:
        return ""
    named = sorted(name for name in declared if name in words) or sorted(declared)
    listed = ", ".join(f'"{name}"' for name in named)
    return f"no server starts, which parameter {listed} may be for: {words}"


def _recorded(settings: Mapping[str, Any], what: str) -> Mapping[str, Mapping[str, str]]:
    return cast(Mapping[str, Mapping[str, str]], settings.get(_RECORD, {}).get(what, {}))


def loading(cluster: ClusterView, settings: Mapping[str, Any]) -> ClusterView:
    """The cluster with the libraries that its servers are told to load, in place of those that are declared."""
    return replace(cluster, preload_libraries=_named(written(cluster, settings).get(_PRELOAD, "")))


def are_same(one: ClusterView, other: ClusterView) -> bool:
    """Whether servers are told the same by both."""
    return _declared(one) == _declared(other)


def without(cluster: ClusterView, back: Sequence[GivenBack]) -> ClusterView:
    """The cluster with former values in place of those that were given back."""
    values = {**_declared(cluster), **{one.name: one.former for one in back}}
    libraries = _named(values.pop(_PRELOAD, ""))
    dropped = {one.name for one in back if not one.former}
    kept = {name: value for name, value in values.items() if name not in dropped}
    return replace(cluster, parameters=kept, preload_libraries=libraries)


def _named(libraries: str) -> Sequence[str]:
    return [bare for name in libraries.split(",") if (bare := name.strip(" \"'"))]


def record(trials: Trials) -> Mapping[str, Any]:
    """What is written beside the settings: what nobody should try again, and what there was before what is tried."""
    kept = {"refused": trials.back, "waiting": trials.waiting}
    noted = {what: {one.name: _noted(one) for one in of} for what, of in kept.items()}
    return {_RECORD: found} if (found := {what: of for what, of in noted.items() if of}) else {}


def _noted(one: GivenBack) -> Mapping[str, str]:
    return {"value": one.value, "former": one.former, **({"said": one.said} if one.said else {})}


def _declared(cluster: ClusterView) -> Mapping[str, str]:
    libraries = {_PRELOAD: ",".join(cluster.preload_libraries)} if cluster.preload_libraries else {}
    return {**cluster.parameters, **libraries}


def _fails(member: Member, primary: Member | None) -> bool:
    """Whether it does not start, and neither a new copy of the data nor room helps against that."""
    lacking = member.diverged or member.full
    return member.state == "StartFailed" and not lacking and member is not primary


def _less(value: str, former: str) -> bool:
    return value.isdecimal() and former.isdecimal() and int(value) < int(former)
