"""System accounts of each primary, and the administrator's password.

Changes need a superuser's login. The operator's own session, which is open anyway, detects a changed password by
its verifier, changed accounts, and roles whose commits do not wait for a replica. If the server refuses this
session, the operator's account was changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from steersman.api.core_v1 import Secret
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Cluster, Database, DatabaseUser
from steersman_databases.cluster.declared import recovery_of
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.database_naming import database_of_secret
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.errors import (
    AdministratorRejected,
    EngineError,
    LimitReached,
    RoleMissing,
    SqlFailed,
)
from steersman_databases.engines.naming import SUPERUSER_ROLE
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, SqlCredentials
from steersman_databases.engines.sql.data_takeover import DataOwner
from steersman_databases.engines.sql.desired import OwnershipMark
from steersman_databases.engines.sql.inspection import InspectionScope
from steersman_databases.engines.sql.sql_plan import SqlChange
from steersman_databases.features.certificates.stage import ClusterCredentials
from steersman_databases.sql.desired import mark_of
from steersman_databases.sql.inspector.server_inspector import NoSlotFree, ServerInspector
from steersman_databases.sql.name_conflicts import server_keys
from steersman_databases.sql.object_marks import ObjectMarks
from steersman_databases.sql.server_resolver import ServerNotResolved, ServerResolver

EnsureSystemAccounts = Callable[[DatabaseServer, SqlCredentials, DataOwner], Awaitable[tuple[SqlChange, ...]]]

_RECHECK_SECONDS = 300.0
_RETRY_SECONDS = 60.0
_DRIFT_CHECK_SECONDS = 15.0


@dataclass(slots=True)
class _LastCheck:
    """Last check of a primary.

    A new process needs one login to repeat it.

    Attributes:
        primary: the primary and the password that it was checked for.
        admin_verifier: verifier of the administrator's password at the last inspection.
        async_commit_roles: roles whose commits do not wait for a replica.
        failed: the correction failed, or did not help.
    """

    primary: tuple[str, int | None, SqlCredentials]
    checked_at: float
    inspected_at: float | None = None
    admin_verifier: str | None = None
    async_commit_roles: frozenset[str] = frozenset()
    failed: bool = False


class SystemAccounts:
    """Reconciles the system accounts of all clusters.

    There is one for each controller.

    Args:
        engine: of the servers.
        ensure_accounts: corrects the accounts, with a superuser's login.
        marks: ownership marks of objects, with the ID of this Kubernetes cluster.
        resolver: finds the primary for the operator's own session.
        inspector: shared with the controllers of databases and users.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        clock: Clock,
        ensure_accounts: EnsureSystemAccounts,
        marks: ObjectMarks,
        resolver: ServerResolver,
        inspector: ServerInspector,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._ensure_accounts = ensure_accounts
        self._marks = marks
        self._resolver = resolver
        self._inspector = inspector
        self._last_checks: dict[ObjectKey, _LastCheck] = {}

    async def ensure(
        self, context: ClusterContext, cluster: Cluster, state: ClusterState, cluster_credentials: ClusterCredentials
    ) -> None:
        """Check a new or changed primary, and each primary periodically."""
        primary = state.primary
        if primary is None or primary.pod is None or not primary.pod_ready or not primary.pod.status.pod_ip:
            return
        timeline = None if primary.member is None else primary.member.timeline
        target = primary.pod.metadata.uid, timeline, cluster_credentials.administrator
        previous, now = self._last_checks.get(context.declared.key), self._clock.monotonic()
        is_fresh = (
            previous is not None and previous.primary == target and now - previous.checked_at < _RECHECK_SECONDS
        )
        if previous is not None and is_fresh and (not await self._has_drifted(context, previous) or previous.failed):
            return
        server, data_owner = (
            self._server(primary.pod.status.pod_ip, cluster_credentials),
            await self._data_owner(context, cluster, state.lineage),
        )
        last = _LastCheck(
            target, now, async_commit_roles=frozenset() if previous is None else previous.async_commit_roles
        )
        try:
            changes = await self._ensure_accounts(server, cluster_credentials.administrator, data_owner)
        except EngineError as error:
            last.checked_at, last.failed = now - _RECHECK_SECONDS + _RETRY_SECONDS, True
            self._last_checks[context.declared.key] = last
            context.events.warning(context.cluster, "AccountsNotUpdated", str(error))
            return
        self._last_checks[context.declared.key] = last
        for change in changes:
            context.events.normal(context.cluster, change.reason, change.message)
        changed = await self._has_drifted(context, last)
        # A correction without effect is not repeated at each inspection.
        last.failed = changed and not changes

    async def _has_drifted(self, context: ClusterContext, last: _LastCheck) -> bool:
        """Return True if accounts or the password changed since the last check."""
        now, name = self._clock.monotonic(), last.primary[2].username
        if last.inspected_at is not None and now - last.inspected_at < _DRIFT_CHECK_SECONDS:
            return False
        last.inspected_at = now
        try:
            resolved = await self._resolver.resolve_own(context.declared)
            scope = InspectionScope(without_contents=frozenset({name}), commit_settings=True, system_accounts=True)
            inspection = await self._inspector.inspect(resolved, context.declared.kind, context.declared.key, scope)
        except (AdministratorRejected, LimitReached, RoleMissing, SqlFailed):
            # The operator's own account: missing, changed, or without a right that it needs.
            return True
        except (ServerNotResolved, NoSlotFree, EngineError):
            # Other features report an unreachable server.
            return False
        last.async_commit_roles = inspection.async_commit_roles
        previous, state = last.admin_verifier, inspection.users.get(name)
        last.admin_verifier = "" if state is None else state.verifier or ""
        changed = inspection.accounts_altered or previous not in (None, last.admin_verifier)
        last.failed = last.failed and changed
        return changed

    def update_synchronous_condition(self, cluster: ObjectKey, conditions: ConditionSet) -> None:
        """Report roles whose commits wait for no replica.

        They come from the last inspection.
        """
        last, synchronous = self._last_checks.get(cluster), conditions.updates.get("Synchronous")
        if last is None or not last.async_commit_roles or synchronous is None or not synchronous.holds:
            return
        reported = f"{synchronous.message}. By synchronous_commit, these do not wait for a replica: "
        conditions.set("Synchronous", True, "NotForAllRoles", reported + ", ".join(sorted(last.async_commit_roles)))

    async def _data_owner(self, context: ClusterContext, cluster: Cluster, lineage: int) -> DataOwner:
        """Return the cluster as owner, with the users declared on it.

        Users with a `serverRef` may be on it, too. Data of a restore in place are taken over once, which locks users
        that nothing declares any more. Marks have no UID of a namespace here.
        """
        (cluster_id,), mark = server_keys(cluster), await self._marks.cluster_id()
        rotation_username_of = self._resolver.sql_engine_for(self._engine.name).rotation_username
        declared = [*await context.client.list(DatabaseUser), *await context.client.list(Database)]
        users = {
            mark_of(of, mark).text: {of.spec.user, rotation_username_of(of.spec.user)}
            if isinstance(of, DatabaseUser)
            else {of.username}
            for of in declared
            if of.spec.server_ref is not None or cluster_id in server_keys(of)
        }
        databases = map(database_of_secret, await context.client.list(Secret))
        retained_users = {
            OwnershipMark(mark, "Database", of.namespace, of.name).text for of in databases if of is not None
        }
        uid = f"{cluster.metadata.uid}.{lineage}" if lineage else cluster.metadata.uid
        text = f"{mark_of(cluster, mark).text} {uid}"
        return DataOwner(text, mark, users, retained_users, restored=recovery_of(cluster) is not None)

    def _server(self, address: str, cluster_credentials: ClusterCredentials) -> DatabaseServer:
        login = Login(
            SUPERUSER_ROLE,
            certificate=cluster_credentials.certificates.superuser(self._clock.now()).as_client_certificate,
        )
        return cluster_credentials.certificates.connection_to(
            self._engine.name, ServerEndpoint(address, self._engine.port), login
        )

    def forget(self, cluster: ObjectKey) -> None:
        """Drop the state of a deleted cluster."""
        self._last_checks.pop(cluster, None)
