"""Servers that must restart for a parameter, in an order in which no standby falls behind what its primary needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from steersman_databases.clusters import rollout
from steersman_databases.clusters.handover import hand_over
from steersman_databases.clusters.observed import Observed
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
    """The next server that has to restart for a parameter; all are well when this is asked."""
    pending = [i for i in observed.instances if i.member is not None and i.member.pending_restart]
    if not pending:
        return None
    primary = observed.members.primary
    assert primary is not None
    if primary.pending_restart and lowers(primary):
        # A replica that restarts earlier starts with the old value, and a switchover brings that back to all.
        return RestartServer(primary.instance, "a parameter is lowered")
    replicas = [i for i in pending if i.number != primary.instance]
    if replicas:
        return RestartServer(replicas[0].number, "a parameter needs it")
    to = rollout.successor(cluster, observed)
    because = "a parameter needs a restart"
    return RestartServer(primary.instance, because) if to is None else hand_over(cluster, observed, to, because)


def lowers(member: Member) -> bool:
    """Whether the restart that ``member`` waits for makes less of what its standbys must not have less of."""
    return any(p.name in STANDBY_SENSITIVE and _less(p.value, p.former) for p in member.pending)


_PRELOAD = "shared_preload_libraries"
# Beside Patroni's own names in its configuration: it takes those that it knows, and keeps the others as they are.
# Source: patroni/config.py of 4.0.7, Config._safe_copy_dynamic_configuration.
_RECORD = "steersman"


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A value that a server did not start with. ``former`` is written in its place for as long as it is declared."""

    name: str
    value: str
    former: str

    @property
    def words(self) -> str:
        """What happened."""
        instead = f"{self.former} is kept" if self.former else "it is left out"
        return f'an instance did not start with parameter "{self.name}" = {self.value}; {instead}'


def given_back(cluster: ClusterView, observed: Observed) -> Sequence[GivenBack]:
    """The declared values that are not to be tried: those found so before, and those that fail now.

    One fails where a replica does not start, and the primary has not restarted for it yet.
    """
    declared, settings = _declared(cluster), observed.members.settings or {}
    recorded = cast(Mapping[str, Mapping[str, str]], settings.get(_RECORD, {}).get("refused", {}))
    found = {n: GivenBack(n, r["value"], r["former"]) for n, r in recorded.items() if declared.get(n) == r["value"]}
    primary = observed.members.primary
    if primary is not None and any(_fails(m) for m in observed.members.members):
        tried = cast(Mapping[str, str], settings.get("postgresql", {}).get("parameters", {}))
        for pending in primary.pending:
            # What was declared since is not what failed.
            if pending.name in declared and declared[pending.name] == tried.get(pending.name):
                found[pending.name] = GivenBack(pending.name, declared[pending.name], pending.former)
    return [found[name] for name in sorted(found)]


def without(cluster: ClusterView, back: Sequence[GivenBack]) -> ClusterView:
    """The cluster with former values in place of those that were given back."""
    values = {**_declared(cluster), **{one.name: one.former for one in back}}
    libraries = [name.strip(" \"'") for name in values.pop(_PRELOAD, "").split(",")]
    dropped = {one.name for one in back if not one.former}
    kept = {name: value for name, value in values.items() if name not in dropped}
    return replace(cluster, parameters=kept, preload_libraries=[name for name in libraries if name])


def record(back: Sequence[GivenBack]) -> Mapping[str, Any]:
    """What is written beside the settings, so that nobody tries these values again."""
    refused = {one.name: {"value": one.value, "former": one.former} for one in back}
    return {_RECORD: {"refused": refused}} if refused else {}


def _declared(cluster: ClusterView) -> Mapping[str, str]:
    libraries = {_PRELOAD: ",".join(cluster.preload_libraries)} if cluster.preload_libraries else {}
    return {**cluster.parameters, **libraries}


def _fails(member: Member) -> bool:
    return member.role == "Replica" and member.state == "StartFailed" and not member.diverged


def _less(value: str, former: str) -> bool:
    return value.isdecimal() and former.isdecimal() and int(value) < int(former)
