"""Shared configuration: validated by the servers before it is written, compared afterwards.

The only state in memory is the result of the last inspection, which a new process repeats. A value that was
reverted because a server did not start with it is recorded next to the configuration, in the same write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from steersman.api.core_v1 import Pod
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.cluster.rules import complete_outage
from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.cluster.status.conditions import ConditionSet, evaluate_parameters
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import (
    ClusterEngine,
    DeclaredCluster,
    SettingCatalog,
    SettingValidation,
)
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.members import HaBackend
from steersman_databases.engines.naming import OPERATOR_ROLE, SUPERUSER_ROLE
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint
from steersman_databases.features.certificates.model import CertificateSet
from steersman_databases.features.parameters import crash_loops
from steersman_databases.features.parameters import model as parameters_model
from steersman_databases.features.parameters.changes import change_message
from steersman_databases.features.parameters.model import effective_parameters, validated_parameters

ListSettings = Callable[[DatabaseServer], Awaitable[SettingCatalog]]
ResetAlterSystem = Callable[[DatabaseServer, Collection[str]], Awaitable[Sequence[str]]]
ValidateSettings = Callable[[DatabaseServer, Mapping[str, str]], Awaitable[SettingValidation]]

# A member may take this long to read a new configuration. After that its values count as final.
_SYNC_TIMEOUT_SECONDS = 30.0
# Each member needs this long to notice that it must restart. The primary may notice before a replica.
_RELOAD_NOTICED_SECONDS = 6.0
# If users can set a parameter on a single server, servers are inspected at this interval, because differences must be
# corrected within 30 s. Each inspection needs a login and a query, so not each reconcile can inspect.
_RECHECK_SECONDS = 15.0
# A server has this time to start with the written configuration. After that it receives newer declared values,
# because a server that does not start may need these.
_START_TIMEOUT = timedelta(minutes=1)


@dataclass(slots=True)
class _ServerSettings:
    """Result of the last inspection of a server's parameters.

    Attributes:
        desired: the parameters that the inspection was about, and if the member waits for a restart.
        since: start of inspections of these parameters.
        alter_system: parameters that differ because users set them on this server.
        maybe_alter_system: further parameters that wait for a restart, to be inspected with more rights.
        reloaded: the server had the time to read the written configuration.
    """

    desired: tuple[Mapping[str, str], bool]
    asked_at: float
    since: float
    alter_system: frozenset[str] = frozenset()
    maybe_alter_system: frozenset[str] = frozenset()
    allows_alter_system: bool = True
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    differs: Mapping[str, str] = field(default_factory=dict[str, str])
    validation: SettingValidation = field(default_factory=SettingValidation)
    reloaded: bool = False

    @property
    def matches(self) -> bool:
        """Return True if it has the declared values and would start."""
        return not (self.differs or self.alter_system or self.validation.unreadable)

    def is_final(self, now: float) -> bool:
        """Return True if no new result is expected for what it reads."""
        return self.reloaded or now - self.since < _RELOAD_NOTICED_SECONDS


@dataclass(frozen=True, slots=True)
class _Inspection:
    """Results of running servers by pod UID, and why one has none."""

    servers: Mapping[str, _ServerSettings]
    unreachable: str | None
    config_unreadable: bool | None


@dataclass(frozen=True, slots=True)
class SyncState:
    """Progress of the settings. `done`: nothing is pending.

    `config_unreadable`: a running server could not read the files for its next start. None if unknown.
    """

    done: bool
    config_unreadable: bool | None


class ParameterReconciler:
    """Writes the shared configuration of all clusters.

    There is one for each controller.

    Args:
        list_settings: reads a server's parameters. With None all are written as declared.
        reset_alter_system: resets values of ALTER SYSTEM, with a superuser's login. None if not supported.
        validate: tries values on a server, with a superuser's login. None if not supported.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        ha_backend: HaBackend,
        clock: Clock,
        list_settings: ListSettings | None,
        reset_alter_system: ResetAlterSystem | None = None,
        validate: ValidateSettings | None = None,
    ) -> None:
        self._engine = engine
        self._ha_backend = ha_backend
        self._clock = clock
        self._list_settings = list_settings
        self._reset_alter_system = reset_alter_system
        self._validate = validate
        # Last result of each server by the UID of its pod, as long as the pod exists.
        self._clusters: dict[ObjectKey, dict[str, _ServerSettings]] = {}

    async def ensure(
        self,
        context: ClusterContext,
        state: ClusterState,
        certificates: CertificateSet,
        conditions: ConditionSet,
        *,
        was_provisioned: bool = False,
        reverts_crashes: bool = False,
    ) -> SyncState:
        """Write the valid parameters, and report the others.

        Args:
            was_provisioned: servers of this cluster ran before.
            reverts_crashes: restore values after whose change servers are in a crash loop.
        """
        declared, stored = context.declared, state.members.settings or {}
        declared = parameters_model.with_slot_defaults(declared, stored)
        undeclared = declared.parameters.keys() - context.declared.parameters.keys()
        parameter_trials = parameters_model.evaluate_trials(declared, state)
        if reverts_crashes:
            parameter_trials = crash_loops.with_reverts(declared, state, parameter_trials)
        declared = parameters_model.with_reverted(declared, parameter_trials.reverted)
        inspection = await self._inspect(context, declared, state, certificates, was_provisioned=was_provisioned)
        servers = list(inspection.servers.values())
        refused = {name: text for one in servers for name, text in one.refused.items()}
        rejected = refused = refused if servers else parameters_model.recorded_rejections(declared, stored)
        unread = {name: found for one in servers for name, found in one.validation.unreadable.items()}
        parameter_trials = parameters_model.with_unread(
            declared, parameter_trials, {n: found for n, found in unread.items() if n not in refused}
        )
        declared = parameters_model.with_reverted(declared, parameter_trials.reverted)
        oversized = parameters_model.exceeding_memory(declared, self._engine.fixed_memory, state)
        readable = _without_unreadable(stored, declared, unread)
        desired = parameters_model.keep_previous(declared, readable, refused)
        # A cluster that already runs with this value keeps it.
        desired = parameters_model.keep_previous(desired, stored, oversized)
        conflicting = parameters_model.conflicting(self._engine, desired, stored)
        desired = parameters_model.keep_previous(desired, readable, conflicting)
        refused = {**refused, **oversized, **conflicting}
        unvalidated = not servers and inspection.unreachable is not None
        if unvalidated:
            desired = parameters_model.keep_unvalidated(desired, stored, parameter_trials.reverted)
        invalid_hba = self._invalid_hba(declared)
        distrusting = frozenset(i.ordinal for i in state.instances if i.distrusts_ca)
        desired = replace(
            desired,
            drop_absent_slots=_holds_wal_for_removed(state),
            distrusting=distrusting,
            existing_ordinals=frozenset(i.ordinal for i in state.instances if i.lineage == state.lineage),
            recovery_approved_for=complete_outage.approved_instance(declared, state),
            allows_alter_system=any(one.alter_system for one in servers),
        )
        settings = {
            **self._settings(desired, stored, bool(invalid_hba)),
            **parameters_model.to_record(declared, parameter_trials, rejected),
        }
        settings = crash_loops.record_changes(declared, stored, settings, parameter_trials, state.now)
        written = await self._ha_backend.configure(state.members, settings)
        if written:
            context.events.normal(context.cluster, "ParametersWritten", change_message(stored, settings))
        not_reset = await self._reset_alter_system_on_all(context, state, certificates, inspection.servers)
        evaluate_parameters(context.declared, state, conditions)
        if unvalidated and not parameters_model.have_same_parameters(desired, declared):
            message = f"no server could validate the parameters ({inspection.unreachable})"
            conditions.set("ParametersApplied", False, "ServerUnreachable", message)
            return SyncState(not written, inspection.config_unreadable)
        now = self._clock.monotonic()
        settled = [one for one in servers if now - one.since >= _SYNC_TIMEOUT_SECONDS]
        different = {name: words for one in settled for name, words in one.differs.items()}
        wrong = {
            **invalid_hba,
            **_rejected(declared, state),
            **not_reset,
            **different,
            **{name: text for name, text in refused.items() if name not in undeclared},
            **{one.name: one.message for one in parameter_trials.reverted},
            **dict(_file_errors(context.declared, state, unread)),
        }
        waits = written or any(
            not one.matches or now - one.since < _RELOAD_NOTICED_SECONDS for one in servers if one not in settled
        )
        if wrong:
            message = "; ".join(wrong[name] for name in sorted(wrong))
            conditions.set("ParametersApplied", False, "ParameterRejected", message)
        elif waits and self._list_settings is not None:
            conditions.keep_previous("ParametersApplied", unless="Applied")
        return SyncState(not waits, inspection.config_unreadable)

    def forget(self, cluster: ObjectKey) -> None:
        """Drop the state of a deleted cluster."""
        self._clusters.pop(cluster, None)

    def _invalid_hba(self, declared: DeclaredCluster) -> dict[str, str]:
        """Return the access rules that servers cannot read, with reasons."""
        problems = {f"pgHba[{n}]": self._engine.validate_hba(rule) for n, rule in enumerate(declared.hba_rules)}
        return {where: f"spec.postgresql.{where}: {message}" for where, message in problems.items() if message}

    def _settings(self, declared: DeclaredCluster, stored: Mapping[str, Any], unread: bool) -> Mapping[str, Any]:
        """Return the declared settings.

        If a rule is unreadable, the previous rules stay: a gap could admit users.
        """
        if not unread:
            return self._engine.shared_configuration(declared)
        settings = self._engine.shared_configuration(replace(declared, hba_rules=()))
        previous = {k: v for k, v in stored.get(self._engine.name, {}).items() if k == "pg_hba"}
        return {**settings, self._engine.name: {**settings[self._engine.name], **previous}}

    async def _inspect(
        self,
        context: ClusterContext,
        declared: DeclaredCluster,
        state: ClusterState,
        certificates: CertificateSet,
        *,
        was_provisioned: bool,
    ) -> _Inspection:
        ask = self._list_settings
        if ask is None:
            return _Inspection({}, None, config_unreadable=False)
        there = {i.pod.metadata.uid for i in state.instances if i.pod is not None}
        previous = {uid: one for uid, one in self._clusters.get(context.declared.key, {}).items() if uid in there}
        # The shared configuration may be the cause, whatever servers reported about it before.
        fails = any(i.member is not None and i.member.state == "StartFailed" for i in state.instances)
        asked: dict[str, Awaitable[_ServerSettings]] = {}
        for instance in state.instances:
            pod, member = instance.pod, instance.member
            serves = instance.pod_ready and not instance.fenced
            if pod is not None and pod.status.pod_ip and member is not None and serves:
                last = previous.get(pod.metadata.uid)
                asked[pod.metadata.uid] = self._inspect_server(
                    ask, declared, instance, certificates, last, fails=fails
                )
        results = dict(zip(asked, await asyncio.gather(*asked.values(), return_exceptions=True), strict=True))
        for answer in results.values():
            if isinstance(answer, BaseException) and not isinstance(answer, EngineError):
                raise answer
        reported = {uid: answer for uid, answer in results.items() if isinstance(answer, _ServerSettings)}
        known = self._clusters[context.declared.key] = {**previous, **reported}
        nobody = "none runs" if _none_has_started(state, was_provisioned=was_provisioned) else None
        unreachable = next((str(a) for a in results.values() if isinstance(a, EngineError)), nobody)
        if self._validate is None:
            return _Inspection(reported, unreachable, config_unreadable=False)
        return _Inspection(
            reported,
            unreachable,
            _config_unreadable((known[uid] for uid in asked if uid in known), reported.values()),
        )

    async def _inspect_server(
        self,
        list_settings: ListSettings,
        declared: DeclaredCluster,
        instance: Instance,
        certificates: CertificateSet,
        previous: _ServerSettings | None,
        *,
        fails: bool,
    ) -> _ServerSettings:
        """Inspect one server, again while it differs or may differ.

        Args:
            fails: another server does not start.
        """
        assert instance.pod is not None and instance.member is not None
        restarts, waiting = instance.member.pending_restart, {p.name for p in instance.member.pending_settings}
        desired = validated_parameters(declared), restarts
        same, now = previous is not None and previous.desired == desired, self._clock.monotonic()
        depends = previous is not None and parameters_model.depends_on_slots(previous.validation.rejected)
        stays = not fails and not depends and not self._engine.allows_alter_system(declared)
        recent = stays or (previous is not None and now - previous.asked_at < _RECHECK_SECONDS)
        if previous is not None and same and previous.matches and recent and previous.is_final(now):
            return previous
        catalog = await list_settings(
            self._server(
                instance.pod,
                Login(OPERATOR_ROLE, certificate=certificates.operator_certificate.as_client_certificate),
                certificates,
            )
        )
        reported = _ServerSettings(desired, now, now)
        kept = self._engine.managed_parameters(declared, catalog)
        reported.alter_system = frozenset(name for name in kept if catalog[name].overridden)
        reported.maybe_alter_system = reported.alter_system.union(
            name for name in kept if catalog[name].pending_restart
        )
        reported.allows_alter_system = (
            "allow_alter_system" not in catalog or catalog["allow_alter_system"].value == "on"
        )
        verdicts = {n: self._engine.classify(n, v, catalog) for n, v in declared.parameters.items()}
        reported.refused = {name: verdict.reason for name, verdict in verdicts.items() if verdict.kind == "Refused"}
        reported.validation = await self._validation(
            declared, instance.pod, certificates, reported, previous if same and not fails else None
        )
        reported.refused = {**reported.validation.rejected, **reported.refused}
        differs: dict[str, str] = {}
        for name, value in declared.parameters.items():
            if name in reported.refused:
                continue
            effective = self._engine.effective_value(name, value, catalog)
            # The member itself reports parameters that wait for a restart.
            if effective is not None and not (
                restarts and (name in waiting or catalog[name].context == "postmaster")
            ):
                where = declared.names.instance(instance.ordinal)
                differs[name] = f'parameter "{name}" is declared as {value}, and {where} uses {effective}'
        reported.differs = differs
        if previous is not None and same and reported.matches >= previous.matches:
            reported.since = previous.since
        reported.reloaded = self._validate is None or now - reported.since >= _RELOAD_NOTICED_SECONDS
        return reported

    async def _validation(
        self,
        declared: DeclaredCluster,
        pod: Pod,
        certificates: CertificateSet,
        server: _ServerSettings,
        previous: _ServerSettings | None,
    ) -> SettingValidation:
        """Validate values on the server, or return an equal previous result."""
        if self._validate is None:
            return SettingValidation()
        last = None if previous is None or not previous.reloaded else previous.validation
        if last is not None and not last.unreadable and not parameters_model.depends_on_slots(last.rejected):
            return last
        values = {n: v for n, v in validated_parameters(declared).items() if n not in server.refused}
        login = Login(SUPERUSER_ROLE, certificate=certificates.superuser(self._clock.now()).as_client_certificate)
        return await self._validate(self._server(pod, login, certificates), values)

    async def _reset_alter_system_on_all(
        self,
        context: ClusterContext,
        state: ClusterState,
        certificates: CertificateSet,
        servers: Mapping[str, _ServerSettings],
    ) -> Mapping[str, str]:
        """Reset users' values on servers. Return failures by instance."""
        maybe_altered = {
            context.declared.names.instance(i.ordinal): (i, one)
            for i in state.instances
            if i.pod is not None and (one := servers.get(i.pod.metadata.uid)) is not None
            if one.maybe_alter_system and one.allows_alter_system
        }
        failures = await asyncio.gather(
            *(self._reset_on_server(context, state, certificates, *each) for each in maybe_altered.values())
        )
        return {
            where: f"{', '.join(sorted(one.alter_system))} on {where} is set by ALTER SYSTEM and cannot be reset: "
            f"{message}"
            for (where, (_, one)), message in zip(maybe_altered.items(), failures, strict=True)
            if message and one.alter_system
        }

    async def _reset_on_server(
        self,
        context: ClusterContext,
        state: ClusterState,
        certificates: CertificateSet,
        instance: Instance,
        server: _ServerSettings,
    ) -> str:
        """Reset such values on one server. Return the failure, or ""."""
        if self._reset_alter_system is None or instance.pod is None or instance.member is None:
            return ""
        login = Login(SUPERUSER_ROLE, certificate=certificates.superuser(self._clock.now()).as_client_certificate)
        try:
            names = await self._reset_alter_system(
                self._server(instance.pod, login, certificates), server.maybe_alter_system
            )
            if names or server.alter_system:
                # By its Patroni, which then detects parameters that wait for a restart.
                await self._ha_backend.reload(state.members, instance.member)
        except EngineError as error:
            return str(error)
        server.maybe_alter_system = frozenset()
        if names:
            what = f"{', '.join(names)} at {context.declared.names.instance(instance.ordinal)}"
            context.events.normal(
                context.cluster, "DriftReverted", f"reverted parameters that were changed by ALTER SYSTEM: {what}"
            )
        return ""

    def _server(self, pod: Pod, login: Login, certificates: CertificateSet) -> DatabaseServer:
        return certificates.connection_to(
            self._engine.name, ServerEndpoint(pod.status.pod_ip or "", self._engine.port), login
        )


def _holds_wal_for_removed(state: ClusterState) -> bool:
    """Return True if WAL is retained only for a removed instance."""
    primary = state.members.primary
    if primary is None or not state.members.slots_kept_for - {i.ordinal for i in state.instances}:
        return False
    return all(i.is_following(primary) for i in state.instances)


def _rejected(declared: DeclaredCluster, state: ClusterState) -> Mapping[str, str]:
    """Return parameters that running servers refused, with their messages."""
    parameters = effective_parameters(declared)
    refused = [one for member in state.members.members for one in member.rejected.items()]
    return {name: message for name, message in refused if name in parameters}


def _file_errors(
    declared: DeclaredCluster, state: ClusterState, unread: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield errors of the whole file, and of the first start."""
    parameters = effective_parameters(declared)
    if others := [message for name, (_, message) in sorted(unread.items()) if name not in parameters]:
        yield "file", f"no instance could start: {'; '.join(others)}"
    if words := parameters_model.bootstrap_failure(declared, state):
        yield "first start", words


def _config_unreadable(last: Iterable[_ServerSettings], present: Iterable[_ServerSettings]) -> bool | None:
    """Return True if servers could not read files for their start.

    Args:
        last: last results of the running servers. A server that does not respond still has its error.
        present: results of this reconcile. Only these can report readable files, because files may have changed.
    """
    if any(one.validation.unreadable for one in last):
        return True
    return False if any(one.reloaded for one in present) else None


def _none_has_started(state: ClusterState, *, was_provisioned: bool) -> bool:
    """Return True if no server tried to start on existing data.

    Servers without enough time for a start do not count. After a major upgrade no owner of the data is recorded
    before the new server runs, and it starts with the parameters that the upgrade has tried.
    """
    there = state.members.is_initialized or (was_provisioned and state.members.settings is not None)
    return there and not any(_has_been_tried(i, state.now) for i in state.instances)


def _has_been_tried(instance: Instance, now: datetime) -> bool:
    if instance.pod is None or instance.pod_terminating or instance.fenced:
        return False
    fails = instance.member is not None and instance.member.state == "StartFailed"
    had_time = instance.unready_for(now) > _START_TIMEOUT and instance.has_run_for(_START_TIMEOUT, now)
    return fails or instance.pod_ready or had_time


def _without_unreadable(
    stored: Mapping[str, Any], declared: DeclaredCluster, unread: Mapping[str, tuple[str, str]]
) -> Mapping[str, Any]:
    """Return stored values without unreadable and (unvalidated) declared ones."""
    previous = parameters_model.stored_parameters(declared, stored)
    bad = {(n, v) for n, (v, _) in unread.items()} | {
        (n, v.strip()) for n, v in effective_parameters(declared).items()
    }
    return {
        declared.engine: {"parameters": {n: v for n, v in previous.items() if not {(n, v), (n, v.strip())} & bad}}
    }
