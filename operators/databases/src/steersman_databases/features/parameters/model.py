"""Order of restarts for parameters.

No standby may have less than its primary requires.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

from steersman.meta import Quantity
from steersman_databases.cluster.actions import Action, RestartServer, Wait
from steersman_databases.cluster.rules import failed_instances, rolling_update
from steersman_databases.cluster.rules.switchover_attempts import plan_switchover
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.engines.annotation_io import parse_int
from steersman_databases.engines.cluster_engine import ClusterEngine, DeclaredCluster
from steersman_databases.engines.members import Member
from steersman_databases.engines.server_pod import server_limits
from steersman_databases.features.parameters.changes import RECORD_KEY, TRIAL_KEY

STANDBY_SENSITIVE = frozenset(
    {
        "max_connections",
        "max_worker_processes",
        "max_wal_senders",
        "max_prepared_transactions",
        "max_locks_per_transaction",
    }
)
"""Parameters that must be at least as high on a standby.

Source: PostgreSQL, "Hot Standby", "Administrator's Overview".
"""


def restart(cluster: DeclaredCluster, state: ClusterState) -> Action | Wait | None:
    """Return the next server to restart for a parameter.

    All members are healthy at this point, or wait for such a restart.
    """
    pending = [i for i in state.instances if i.member is not None and i.member.restart_due]
    if not any(_is_standby_sensitive(i) for i in pending):
        # A pod that is recreated for another reason starts its server with all new values.
        pending = [i for i in pending if not rolling_update.is_outdated(cluster, state, i)]
    pending = [
        i for i in pending if not waiting_settings(cluster, state, i) and not deferred_settings(cluster, state, i)
    ]
    if not pending:
        return None
    primary = state.members.primary
    assert primary is not None
    replicas = [i for i in pending if i.ordinal != primary.instance]
    if primary.restart_due and is_lowered_on_restart(primary):
        if behind := [i for i in replicas if i.member is not None and _is_raised_on_restart(i.member)]:
            return RestartServer(behind[0].ordinal, "a parameter must be raised before another one is lowered")
        # A replica that restarts earlier would start with the old value, which a switchover would apply to all.
        return RestartServer(primary.instance, "a parameter was lowered")
    if replicas:
        return RestartServer(replicas[0].ordinal, "a parameter needs a restart")
    to = rolling_update.successors(cluster, state)
    reason = "a parameter needs a restart"
    return plan_switchover(cluster, state, to, reason) if to else RestartServer(primary.instance, reason)


def waiting_settings(cluster: DeclaredCluster, state: ClusterState, instance: Instance) -> Sequence[str]:
    """Return the parameters whose restart waits for a maintenance window.

    A restart is unrequested if the spec declares none of the parameters. It does not wait if another instance runs
    with a lowered value already.
    """
    member = instance.member
    if not cluster.waits_for_window or member is None or not member.restart_due or is_lowering(state):
        return ()
    names = [setting.name for setting in member.pending_settings]
    return () if any(name in _declared_parameters(cluster) for name in names) else names


def deferred_settings(cluster: DeclaredCluster, state: ClusterState, instance: Instance) -> Sequence[str]:
    """Return the sized parameters that wait for the next restart.

    The pod was resized in place, which must not restart servers. With maintenance windows the restart waits for one
    of these instead. A replica does not wait if the primary runs with a raised value already.
    """
    member, primary = instance.member, state.members.primary
    if member is None or not member.restart_due or cluster.has_maintenance_windows:
        return ()
    if not rolling_update.is_resized_in_place(cluster, state, instance):
        return ()
    if is_lowering(state) or (
        primary is not None and _is_raised_on_restart(member) and not _is_raised_on_restart(primary)
    ):
        return ()
    sized = {one.name for one in cluster.sized}
    names = [setting.name for setting in member.pending_settings]
    return names if sized.issuperset(names) else ()


def deferred_instances(cluster: DeclaredCluster, state: ClusterState) -> Mapping[int, Sequence[str]]:
    """Return the deferred parameters by instance."""
    return {i.ordinal: names for i in state.instances if (names := deferred_settings(cluster, state, i))}


def deferral_note(cluster: DeclaredCluster, deferred: Mapping[int, Sequence[str]]) -> str:
    """Return a sentence about deferred parameters, or ""."""
    names = sorted({name for each in deferred.values() for name in each})
    where = ", ".join(map(cluster.names.instance, deferred))
    return f". At the next restart of {where} {', '.join(names)} follow the resources" if deferred else ""


def _is_standby_sensitive(instance: Instance) -> bool:
    settings = () if instance.member is None else instance.member.pending_settings
    return any(p.name in STANDBY_SENSITIVE for p in settings)


def is_lowered_on_restart(member: Member) -> bool:
    """Return True if the pending restart lowers a standby-sensitive parameter."""
    return any(p.name in STANDBY_SENSITIVE and _is_less(p.value, p.previous) for p in member.pending_settings)


def is_lowering(state: ClusterState) -> bool:
    """Return True if the primary has lowered a parameter before another member.

    Such a member would revert the change as the primary.
    """
    primary, members = state.members.primary, state.members.members
    return primary is not None and not is_lowered_on_restart(primary) and any(map(is_lowered_on_restart, members))


def _is_raised_on_restart(member: Member) -> bool:
    return any(p.name in STANDBY_SENSITIVE and _is_less(p.previous, p.value) for p in member.pending_settings)


def exceeding_memory(
    cluster: DeclaredCluster, fixed_memory: Callable[[str, str], int | None], state: ClusterState | None = None
) -> Mapping[str, str]:
    """Return parameters that would need all memory of the container.

    The server would be killed.

    Args:
        fixed_memory: returns the bytes that a server allocates for a parameter's value, or None if unknown.
        state: running containers may have other limits than the declared ones.
    """
    limits = [limit for each in _limits(cluster, state) if (limit := _memory(each)) is not None]
    if not limits:
        return {}
    exceeding, limit_text = min(limits)
    return {
        name: f'parameter "{name}" = {value} needs more than the memory limit of {limit_text} of an instance'
        for name, value in cluster.parameters.items()
        if (desired := fixed_memory(name, value)) is not None and desired >= exceeding
    }


def _limits(cluster: DeclaredCluster, state: ClusterState | None) -> Iterator[Mapping[str, int | str]]:
    yield cluster.pod_settings.resources.limits
    for instance in () if state is None else state.instances:
        if instance.pod is not None:
            yield from server_limits(instance.pod)


def _memory(limits: Mapping[str, int | str]) -> tuple[Decimal, str] | None:
    """Return the limit in bytes and as text, with huge pages.

    None if there is no limit.
    """
    if "memory" not in limits:
        return None
    given = [Quantity(str(n)) for name, n in limits.items() if name == "memory" or name.startswith("hugepages-")]
    return sum((each.value for each in given), Decimal()), " + ".join(map(str, given))


_USED_BY_BASE_COPY = {"max_wal_senders": 2, "max_replication_slots": 1}
"""Usage of a base copy on the primary.

Source: PostgreSQL, "pg_basebackup", `--wal-method` and `--no-slot`.
"""


def blocks_catch_up(state: ClusterState, instance: Instance) -> bool:
    """Return True if a replica may need the primary's restart to follow.

    The restart raises limits on the primary. The replica has not followed for long, or it copies and so many
    replicas
    follow that no copy is possible.
    """
    primary, member = state.members.primary, instance.member
    if primary is None or member is None or member.role != "Replica":
        return False
    raised_parameters = {
        p.name: int(p.previous)
        for p in primary.pending_settings
        if p.name in _USED_BY_BASE_COPY and _is_less(p.previous, p.value)
    }
    if member.state != "Cloning":
        return bool(raised_parameters) and failed_instances.is_not_following(instance, state)
    replicas = [m for m in state.members.members if m is not primary]
    # A known member has a slot, and it uses a WAL sender while it streams.
    used_by_copy = {
        "max_wal_senders": sum(m.state == "Streaming" for m in replicas),
        "max_replication_slots": len(replicas),
    }
    return any(
        used_by_copy[name] + _USED_BY_BASE_COPY[name] > previous for name, previous in raised_parameters.items()
    )


_PRELOAD_LIBRARIES = "shared_preload_libraries"


@dataclass(frozen=True, slots=True)
class RevertedParameter:
    """A value with which a server did not start.

    `previous` replaces it as long as it is declared. With `server_message` a running server reported that it would
    not start. With `crashes` servers started with it, and crashed this often.
    """

    name: str
    value: str
    previous: str
    server_message: str = ""
    crashes: int = 0

    @property
    def message(self) -> str:
        """Description for conditions."""
        replacement = f"keeping {self.previous}" if self.previous else "ignoring it"
        if self.crashes:
            change = f'parameter "{self.name}" was set to {self.value}'
            return f"servers crashed {self.crashes} times after {change}; {replacement}"
        outcome = f'an instance could not start with parameter "{self.name}" = {self.value}'
        return (
            f"{f'no instance could start with it: {self.server_message}' if self.server_message else outcome}; "
            f"{replacement}"
        )


@dataclass(frozen=True, slots=True)
class ParameterTrials:
    """Values with the state of their trial.

    `reverted` are not tried again. `pending` are tried at the next restart of a server.
    """

    reverted: Sequence[RevertedParameter] = ()
    pending: Sequence[RevertedParameter] = ()


def evaluate_trials(cluster: DeclaredCluster, state: ClusterState) -> ParameterTrials:
    """Return declared values that failed, and those that wait for a restart.

    The primary reports waiting values. They are recorded before any restart, because the only server may not start
    and then cannot report them. A value failed if a server does not start, and the primary, if any, has not
    restarted
    for it yet.
    """
    declared, settings = _written_parameters(cluster), state.members.settings or {}
    stored = stored_parameters(cluster, settings)
    rejected, waiting = (
        {
            n: RevertedParameter(n, r["value"], r["former"], r.get("said", ""), parse_int(r.get("crashes")) or 0)
            for n, r in recorded.items()
            if declared.get(n) == r["value"]
        }
        for recorded in (_recorded(settings, "refused"), _recorded(settings, "waiting"))
    )
    if (primary := state.members.primary) is not None:
        pending = {p.name: p.previous for p in primary.pending_settings if p.name in declared}
        waiting = {name: RevertedParameter(name, declared[name], previous) for name, previous in pending.items()}
    # Values that were declared later did not cause the failure.
    candidate = {name: one for name, one in waiting.items() if one.value == stored.get(name)}
    if any(_fails_to_start(m, primary) for m in state.members.members):
        rejected |= candidate
    return ParameterTrials(
        [rejected[name] for name in sorted(rejected)],
        [candidate[name] for name in sorted(candidate) if name not in rejected],
    )


def stored_parameters(cluster: DeclaredCluster, settings: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the parameters in the members' shared configuration."""
    return cast(Mapping[str, str], settings.get(cluster.engine, {}).get("parameters", {}))


_SLOT_DEFAULTS = {"wal_level": "replica", "max_replication_slots": "10"}
"""Values of Patroni for parameters on which existing slots depend.

A server with more slots, or with a logical slot and another `wal_level`, does not start.
"""


def with_slot_defaults(cluster: DeclaredCluster, settings: Mapping[str, Any]) -> DeclaredCluster:
    """Declare defaults of removed parameters, so that servers can refuse them."""
    stored = stored_parameters(cluster, settings)
    removed = {n: v for n, v in _SLOT_DEFAULTS.items() if n in stored and n not in cluster.parameters}
    return replace(cluster, parameters={**cluster.parameters, **removed}) if removed else cluster


def depends_on_slots(rejected: Collection[str]) -> bool:
    """Return True if dropped slots may change the result."""
    return any(name in _SLOT_DEFAULTS for name in rejected)


def validated_parameters(cluster: DeclaredCluster) -> Mapping[str, str]:
    """Return the values that servers validate, with libraries."""
    return _written_parameters(cluster)


def effective_parameters(cluster: DeclaredCluster) -> Mapping[str, str]:
    """Return sized and declared parameters, without libraries."""
    return {**{one.name: one.value for one in cluster.sized}, **cluster.parameters}


def with_unread(
    cluster: DeclaredCluster, trials: ParameterTrials, unread: Mapping[str, tuple[str, str]]
) -> ParameterTrials:
    """Add values that a running server could not read in its file.

    It would start without them.

    Args:
        unread: value and error message by name.
    """
    parameters = effective_parameters(cluster)
    found = [
        RevertedParameter(name, value, "", message)
        for name, (value, message) in sorted(unread.items())
        if parameters.get(name) == value
    ]
    return replace(trials, reverted=[*trials.reverted, *found])


def bootstrap_failure(cluster: DeclaredCluster, state: ClusterState) -> str:
    """Return why the first server of a new cluster does not start.

    Empty if it may start, or if the reason is unknown. There are no previous values to revert to. The message lists
    the
    parameters that the server names, or else all declared ones.
    """
    message = next((w for i in state.instances if "FATAL:" in (w := i.termination_message)), "")
    written, declared = _written_parameters(cluster), _declared_parameters(cluster)
    named = sorted(name for name in written if name in message) or sorted(declared)
    if state.members.is_initialized or not message or not named:
        return ""
    listed = ", ".join(f'"{name}"' for name in named)
    return f"no server can start, possibly because of parameter {listed}: {message}"


def _recorded(settings: Mapping[str, Any], section: str) -> Mapping[str, Mapping[str, str]]:
    return cast(Mapping[str, Mapping[str, str]], settings.get(RECORD_KEY, {}).get(section, {}))


def recorded_rejections(cluster: DeclaredCluster, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return messages of servers about declared values that they rejected.

    They count while no server runs: a server that is down would not start with such a value.
    """
    declared = _written_parameters(cluster)
    recorded = _recorded(settings, "rejected")
    return {name: one["said"] for name, one in recorded.items() if declared.get(name) == one["value"]}


def with_stored_libraries(cluster: DeclaredCluster, settings: Mapping[str, Any]) -> DeclaredCluster:
    """Return the cluster with the stored libraries instead of the declared ones."""
    return replace(
        cluster, preload_libraries=_library_names(stored_parameters(cluster, settings).get(_PRELOAD_LIBRARIES, ""))
    )


def have_same_parameters(one: DeclaredCluster, other: DeclaredCluster) -> bool:
    """Return True if both result in the same parameters of servers."""
    return _written_parameters(one) == _written_parameters(other)


def keep_unvalidated(
    declared: DeclaredCluster, stored: Mapping[str, Any], reverted: Sequence[RevertedParameter]
) -> DeclaredCluster:
    """Return the cluster with stored values of unvalidated parameters.

    Servers ran with the previous values of reverted ones.
    """
    valid = {one.name for one in reverted}
    kept = keep_previous(declared, stored, [n for n in requires_validation(declared) if n not in valid])
    return with_stored_libraries(kept, stored) if stored and _PRELOAD_LIBRARIES not in valid else kept


def requires_validation(declared: DeclaredCluster) -> Collection[str]:
    """Return the parameters whose values a server may refuse.

    Sized numbers are valid, and must fit a lowered limit before the next start. Sized words depend on the image.
    """
    return {*declared.parameters, *(one.name for one in declared.sized if not one.value[:1].isdigit())}


def keep_previous(declared: DeclaredCluster, stored: Mapping[str, Any], names: Collection[str]) -> DeclaredCluster:
    """Replace these declared or sized parameters by stored values, if any.

    Stored libraries replace all declared ones.
    """
    if not names:
        return declared
    if _PRELOAD_LIBRARIES in names:
        declared = with_stored_libraries(declared, stored)
    previous = stored_parameters(declared, stored)
    given = [name for name in effective_parameters(declared) if name in names]
    kept = {name: value for name, value in declared.parameters.items() if name not in names}
    parameters = {**kept, **{name: previous[name] for name in given if name in previous}}
    return replace(declared, parameters=parameters, sized=[one for one in declared.sized if one.name not in names])


def with_reverted(cluster: DeclaredCluster, reverted: Sequence[RevertedParameter]) -> DeclaredCluster:
    """Return the cluster with previous values of reverted parameters."""
    values = {**_declared_parameters(cluster), **{one.name: one.previous for one in reverted}}
    libraries = _library_names(values.pop(_PRELOAD_LIBRARIES, ""))
    removed = {one.name for one in reverted if not one.previous}
    kept = {name: value for name, value in values.items() if name not in removed}
    sized = [one for one in cluster.sized if one.name not in removed]
    return replace(cluster, parameters=kept, preload_libraries=libraries, sized=sized)


def _library_names(libraries: str) -> Sequence[str]:
    return [bare for name in libraries.split(",") if (bare := name.strip(" \"'"))]


def to_record(cluster: DeclaredCluster, trials: ParameterTrials, rejected: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the record that is written next to the settings.

    It has the values that must not be tried again, the previous values of pending ones, and values that a running
    server rejected.
    """
    kept = {"refused": trials.reverted, "waiting": trials.pending}
    entries: dict[str, Mapping[str, Any]] = {
        section: {one.name: _record_entry(one) for one in entry} for section, entry in kept.items()
    }
    declared = _written_parameters(cluster)
    entries["rejected"] = {n: {"value": declared[n], "said": text} for n, text in rejected.items() if n in declared}
    if cluster.trial is not None:
        entries[TRIAL_KEY] = cluster.trial.to_record()
    return {RECORD_KEY: found} if (found := {what: of for what, of in entries.items() if of}) else {}


def _record_entry(one: RevertedParameter) -> Mapping[str, str]:
    return {
        "value": one.value,
        "former": one.previous,
        **({"said": one.server_message} if one.server_message else {}),
        **({"crashes": str(one.crashes)} if one.crashes else {}),
    }


def _declared_parameters(cluster: DeclaredCluster) -> Mapping[str, str]:
    libraries = {_PRELOAD_LIBRARIES: ",".join(cluster.preload_libraries)} if cluster.preload_libraries else {}
    return {**cluster.parameters, **libraries}


def _written_parameters(cluster: DeclaredCluster) -> Mapping[str, str]:
    return {**effective_parameters(cluster), **_declared_parameters(cluster)}


def _fails_to_start(member: Member, primary: Member | None) -> bool:
    """Return True if it does not start because of its configuration.

    A new copy of the data or more space would not help.
    """
    missing = member.timeline_diverged or member.disk_full
    return member.state == "StartFailed" and not missing and member is not primary


def _is_less(value: str, previous: str) -> bool:
    return value.isdecimal() and previous.isdecimal() and int(value) < int(previous)


def conflicting(
    engine: ClusterEngine, declared_cluster: DeclaredCluster, stored: Mapping[str, Any]
) -> dict[str, str]:
    """Return new parameters that prevent a start in combination, with reasons."""
    previous = stored_parameters(declared_cluster, stored)
    found = dict[str, str]()
    for names, message in engine.conflicts(declared_cluster.parameters):
        declared = [name for name in names if name in declared_cluster.parameters]
        new = [name for name in declared if declared_cluster.parameters[name] != previous.get(name)]
        found.update(dict.fromkeys(new or declared[:1], message))
    return found
