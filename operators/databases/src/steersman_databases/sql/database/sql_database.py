"""SQL objects of a `Database` on a cluster or any other server."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from steersman.api.core_v1 import Secret
from steersman.cache import CachedClient
from steersman.client import MergePatch
from steersman.controller import EventRecorder
from steersman.meta import to_builtins
from steersman_databases.api import Database
from steersman_databases.api.group import FORCE_DELETE_ANNOTATION, is_deletion_forced
from steersman_databases.api.reasons import DATABASE_REASONS
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.database_naming import (
    TRACKING_LABEL,
    DatabaseNames,
    belongs_to_database,
    database_secret_labels,
)
from steersman_databases.core.outcome import (
    DatabaseOutcome,
    ReconcileBlocked,
    error_with_advice,
    reason_of,
    with_advice,
)
from steersman_databases.engines import EngineError, InvalidName, ServerEndpoint, ServerUnreachable, SqlCredentials
from steersman_databases.engines.errors import ConcurrentChange, DropBlocked, OwnerMissing
from steersman_databases.engines.server import DatabaseServer, TLSMode
from steersman_databases.engines.sql.desired import DesiredDatabase, OwnershipMark
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.ownership_marks import retention_reason
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan
from steersman_databases.sql.connection_secret import connection_entries, database_secret
from steersman_databases.sql.database.dedicated_cluster import DedicatedCluster
from steersman_databases.sql.desired import desired_database, desired_owner
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_databases.sql.name_ownership import NameOwnership, database_naming_owner, require_namespace_rights
from steersman_databases.sql.object_marks import ObjectMarks
from steersman_databases.sql.server_resolver import ResolvedServer, ServerNotResolved, ServerResolver
from steersman_databases.sql.tenancy import is_cross_namespace

KIND = Database.api_resource.kind
_LEFTOVER_RETRY_SECONDS = 300.0
"""Interval to check if a remaining user is still needed.

No event reports this.
"""


@dataclass(frozen=True, slots=True)
class SqlDatabase:
    """A `Database` with the clients that its reconcile needs."""

    client: CachedClient
    events: EventRecorder
    resolver: ServerResolver
    inspector: ServerInspector
    marks: ObjectMarks
    database: Database
    cluster: DedicatedCluster | None
    """The dedicated cluster, if the database has one."""

    async def ensure(self) -> tuple[ServerEndpoint, DatabaseOutcome]:
        """Ensure database, owner and Secret, and return the endpoint for applications.

        Raises:
            ReconcileBlocked: not possible now.
            NoSlotFree: other workers come first.
        """
        database = self.database
        resolved = await self._resolve()
        mark = await self.marks.mark_of(database)
        desired = desired_database(database, mark, cross_namespace=is_cross_namespace(database, resolved.namespace))
        owner = None
        if not database.spec.owner:
            secret = await self._ensure_secret(resolved, desired)
            owner = desired_owner(database, _password_in(secret), mark)
        expected = (desired,) if owner is None else (owner, desired)
        try:
            for each in expected:
                resolved.sql_engine.check(each, resolved.server.login.username)
            self._emit_changes(await self.inspector.reconcile(resolved, KIND, database.key, expected))
            left = await self._drop_previous_owner(resolved, mark) if owner is None else ""
        except EngineError as error:
            self._emit_changes(error.changes)
            blocked = self._blocked(error)
            blocked.endpoint = self._client_endpoint(resolved.server).endpoint
            raise blocked from error
        reported = f"database {database.database_name} " + (
            f"and user {database.username} are as declared" if owner is not None else "is as declared"
        )
        if left:
            reported += f"; user {database.generated_username}, made for it before, was not dropped: {left}"
        return self._client_endpoint(resolved.server).endpoint, DatabaseOutcome(
            phase="Ready",
            reason="DatabaseReady",
            message=reported,
            retry_after=_LEFTOVER_RETRY_SECONDS if left else None,
        )

    async def delete(self, *, retained_because: str = "") -> None:
        """Drop database and owner, or delete their cluster, if declared so.

        Retained objects stay. An owner that owns more on the server stays, too, with its Secret.

        Args:
            retained_because: why the database stays although its deletion is declared. Defaults to no reason.

        Raises:
            ReconcileBlocked: it waits for the server.
            NoSlotFree: other workers come first.
        """
        self.inspector.forget(KIND, self.database.key)
        if self.cluster is not None:
            await self.cluster.delete()
            if self.database.spec.deletion_policy == "Delete":
                await self._delete_secret()
            return
        if is_deletion_forced(self.database):
            # The Secret must live as long as the owner, whose fate is unknown.
            await self._emit_retained(f"{FORCE_DELETE_ANNOTATION} is true", secret_kept=True)
            return
        if self.database.spec.deletion_policy != "Delete":
            await self._emit_retained(f"deletionPolicy is {self.database.spec.deletion_policy}", secret_kept=True)
            return
        if retained_because:
            await self._emit_retained(retained_because, secret_kept=True)
            return
        try:
            resolved = await self.resolver.resolve(self.database)
        except ServerNotResolved as reason:
            if not reason.gone and not await self.resolver.namespace_is_terminating(self.database):
                raise self._wait_for_deletion(str(reason)) from None
            await self._emit_retained(str(reason), secret_kept=False)
        else:
            mark = await self.marks.mark_of(self.database)
            try:
                left, owned = await self._drop_database(resolved, mark)
                if left and owned:
                    await self._emit_retained(left, secret_kept=True)
                    return
                if left:
                    reported = f"database {self.database.database_name} was not dropped: {left}"
                    self.events.normal(self.database, "DataRetained", reported)
                if left := await self._drop_owner(resolved, mark):
                    reported = f"user {self.database.generated_username} was not dropped: {left}"
                    self.events.normal(self.database, "DataRetained", reported + await self._secret_note("it"))
                    return
            except EngineError as error:
                self._emit_changes(error.changes)
                raise self._wait_for_deletion(str(error)) from error
        await self._delete_secret()

    async def _resolve(self) -> ResolvedServer:
        try:
            resolved = await self.resolver.resolve(self.database)
            await NameOwnership(self.client, self.resolver, self.inspector, self.marks).require_oldest(
                self.database, resolved
            )
            require_namespace_rights(self.database, resolved.namespace)
        except ServerNotResolved as reason:
            self.inspector.forget(KIND, self.database.key)
            message = with_advice(str(reason), reason.reason)
            raise ReconcileBlocked("Pending", reason.reason, message, retry_after=30.0) from None
        except EngineError as error:
            raise self._blocked(error) from error
        return resolved

    async def _ensure_secret(self, resolved: ResolvedServer, desired: DesiredDatabase) -> Secret:
        """Ensure the Secret for applications.

        It is created before the owner, because without it the owner's password would be lost. It comes after the
        check that
        the database is possible.
        """
        database = self.database
        key = DatabaseNames(database.key).application_secret
        secret = await get_cached_or_live(self.client, Secret, key)
        if secret is not None and not belongs_to_database(secret, database):
            raise ReconcileBlocked(
                "Failed", "NameConflict", f"Secret {key.name} exists and does not belong to this Database"
            )
        if secret is None and self.cluster is None:
            await self._check_feasible(resolved, desired)
        credentials = SqlCredentials(database.username, _password_in(secret) or secrets.token_urlsafe(24))
        server = self._client_endpoint(resolved.server)
        data = connection_entries(server, resolved.sql_engine, credentials, database.database_name)
        labels = database_secret_labels(database)
        desired_owners = () if self.cluster is None else await self.cluster.secret_owners()
        if secret is None:
            created = await self.client.create(database_secret(key, labels, data, desired_owners))
            self.events.normal(database, "Created", f"created Secret {key.name}")
            return created
        complete = all(secret.data.get(name) == value for name, value in data.items())
        owners = {o.uid for o in secret.metadata.owner_references}
        missing = [owner for owner in desired_owners if owner.uid not in owners]
        # Earlier versions set the label by which GitOps tools track their objects.
        is_tracked = secret.metadata.labels.get(TRACKING_LABEL) == database.metadata.name
        if complete and not missing and not is_tracked:
            return secret
        # Not applied by force: a concurrent change of the password must not be overwritten.
        metadata: dict[str, Any] = {"resourceVersion": secret.metadata.resource_version}
        if missing:
            metadata["ownerReferences"] = to_builtins([*secret.metadata.owner_references, *missing])
        if is_tracked:
            metadata["labels"] = {**labels, TRACKING_LABEL: None}
        patched = await self.client.patch(Secret, key, MergePatch({"metadata": metadata, "data": to_builtins(data)}))
        if not complete:
            self.events.normal(database, "SecretRestored", f"completed Secret {key.name}")
        return patched

    async def _check_feasible(self, resolved: ResolvedServer, desired: DesiredDatabase) -> None:
        try:
            resolved.sql_engine.check(desired, resolved.server.login.username)
            inspection = await self.inspector.inspect(
                resolved, KIND, self.database.key, InspectionScope.of([desired])
            )
            with suppress(OwnerMissing):
                resolved.sql_engine.plan_database(inspection, desired)
        except EngineError as error:
            raise self._blocked(error) from error

    def _client_endpoint(self, server: DatabaseServer) -> DatabaseServer:
        """Return the server with the address for applications."""
        if self.cluster is None:
            return server
        # The URI requires encryption without verification, because it must work without a file of the authority.
        return replace(
            server,
            endpoint=ServerEndpoint(DatabaseNames(self.database.key).host, server.endpoint.port),
            verification=replace(server.verification, mode=TLSMode.REQUIRE),
        )

    async def _drop_database(self, resolved: ResolvedServer, mark: OwnershipMark) -> tuple[str, bool]:
        """Drop the database, or return why it stays.

        The second result is True if it stays in the possession of its generated user.
        """
        name, left, owned = self.database.database_name, "", False

        def planner(inspection: Inspection) -> SqlPlan:
            nonlocal left, owned
            plan, state = (
                resolved.sql_engine.plan_drop_database(inspection, name, mark),
                inspection.databases.get(name),
            )
            left = "" if plan else retention_reason(state, mark)
            # Without a mark, privileges are the only sign of an owner on MySQL.
            may = {one.grantee for one in state.privileges} | {state.owner} if state is not None else set[str]()
            owned = self.database.generated_username in may
            return plan

        await self._execute(resolved, planner)
        return left, owned

    async def _drop_previous_owner(self, resolved: ResolvedServer, mark: OwnershipMark) -> str:
        """Drop the generated owner after another one was declared.

        Returns why it stays with its Secret, or "". The Secret exists before its user and is deleted after it, so
        without
        a Secret there is no such user. A Secret of a previous object of this name may belong to retained data on
        another
        server.
        """
        database, secret, here = (
            self.database,
            await self._own_secret(),
            self._client_endpoint(resolved.server).endpoint,
        )
        if database.spec.owner == database.generated_username or secret is None:
            return ""
        if [secret.data.get(entry) for entry in ("host", "port")] != [here.host.encode(), str(here.port).encode()]:
            return ""
        if database.spec.deletion_policy != "Delete":
            left = f"deletionPolicy is {database.spec.deletion_policy}"
        elif not (left := await self._drop_owner(resolved, mark)):
            await self._delete_secret()
            return ""
        return left + await self._secret_note("it")

    async def _drop_owner(self, resolved: ResolvedServer, mark: OwnershipMark) -> str:
        """Drop the owner, or return why it stays.

        An owner of other objects on the server keeps its login.
        """
        name, left = self.database.generated_username, ""
        needed, secret = (
            await database_naming_owner(self.client, self.database, name, resolved.namespace),
            await self._own_secret(),
        )

        def planner(inspection: Inspection) -> SqlPlan:
            nonlocal left
            try:
                plan = resolved.sql_engine.plan_drop_user(inspection, name, mark, None)
            except DropBlocked as needs:
                plan = SqlPlan(failure=needs)
            if isinstance(plan.failure, DropBlocked):
                left = plan.failure.cause
            elif plan:
                left = needed
            if not left:
                return plan
            # It is not locked either, unlike a user that waits to be dropped. A previous attempt may have locked it.
            password = _password_in(secret)
            if not password or (state := inspection.users.get(name)) is None or (state.login and not state.locked):
                return SqlPlan()
            return resolved.sql_engine.plan_user(inspection, desired_owner(self.database, password, mark))

        await self._execute(resolved, planner, drops_owner=True)
        return left

    async def _execute(
        self, resolved: ResolvedServer, planner: Callable[[Inspection], SqlPlan], *, drops_owner: bool = False
    ) -> None:
        database = self.database
        names = frozenset(
            {database.generated_username, resolved.sql_engine.rotation_username(database.generated_username)}
        )
        dropped = names if drops_owner else frozenset[str]()
        scope = InspectionScope(users=names, databases=frozenset({database.database_name}), dropped_databases=dropped)
        self._emit_changes(await self.inspector.execute(resolved, KIND, database.key, scope, planner))

    async def _emit_retained(self, reason: str, *, secret_kept: bool) -> None:
        """Emit an Event about retained objects.

        Args:
            secret_kept: the Secret stays, too.
        """
        reported = f"database {self.database.database_name} and its owner were not dropped: {reason}"
        opened = f"user {self.database.generated_username}" if self.database.spec.owner else "them"
        self.events.normal(
            self.database, "DataRetained", reported + (await self._secret_note(opened) if secret_kept else "")
        )

    async def _secret_note(self, message: str) -> str:
        """Return a note for Events if the Secret stays, too."""
        secret = await self._own_secret()
        if secret is None:
            return ""
        return f"; Secret {secret.metadata.name} gives access to {message} and is retained"

    async def _delete_secret(self) -> None:
        secret = await self._own_secret()
        if secret is not None:
            await self.client.delete(Secret, secret.key, uid=secret.metadata.uid)

    async def _own_secret(self) -> Secret | None:
        secret = await get_cached_or_live(self.client, Secret, DatabaseNames(self.database.key).application_secret)
        return secret if secret is not None and belongs_to_database(secret, self.database) else None

    def _blocked(self, error: EngineError) -> ReconcileBlocked:
        if isinstance(error, ServerUnreachable):
            if self.cluster is None:
                return ReconcileBlocked("Pending", "ServerUnreachable", error_with_advice(error), backoff=True)
            # Other watches report on a dedicated server, and a new one is still starting.
            return ReconcileBlocked("Provisioning", "ServerUnreachable", error_with_advice(error), retry_after=5.0)
        if isinstance(error, ConcurrentChange):
            return ReconcileBlocked("Provisioning", "SqlFailed", str(error), retry_after=2.0)
        reason, reported = reason_of(error, DATABASE_REASONS["Ready"]), error_with_advice(error)
        if isinstance(error, InvalidName) and error.field == "password":
            reported = f"Secret {DatabaseNames(self.database.key).application_secret.name}: {reported}"
        return ReconcileBlocked("Failed", reason, reported, backoff=True)

    def _wait_for_deletion(self, reason: str) -> ReconcileBlocked:
        return ReconcileBlocked("Deleting", "Deleting", deletion_blocked(self.database, reason), retry_after=15.0)

    def _emit_changes(self, changes: tuple[SqlChange, ...]) -> None:
        for change in changes:
            self.events.normal(self.database, change.reason, change.message)


def _password_in(secret: Secret | None) -> str:
    return secret.data.get("password", b"").decode(errors="replace") if secret is not None else ""


def deletion_blocked(database: Database, reason: str) -> str:
    """Return the message of a blocked deletion.

    It contains a way to force the deletion, if there is one.
    """
    forced = is_deletion_forced(database)
    if database.makes_cluster or database.spec.deletion_policy != "Delete" or forced:
        return reason
    advice = f"To delete the object without dropping the database, annotate it with {FORCE_DELETE_ANNOTATION}=true"
    return f"cannot drop the database: {reason}. {advice}"
