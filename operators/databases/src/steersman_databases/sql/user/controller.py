"""Controller of `DatabaseUser`: credentials, the user on the server, the connection Secret."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from steersman.api.core_v1 import Secret
from steersman.cache import InformerEvent
from steersman.controller import (
    ReconcileOutcome,
    ReconcilerContext,
    Request,
    RequestReconciler,
    Result,
    add_finalizer,
    remove_finalizer,
)
from steersman.errors import ApiError
from steersman.meta import find_condition
from steersman_databases.api import DatabaseUser, DatabaseUserStatus, UserCondition
from steersman_databases.api.database_user import set_user_condition
from steersman_databases.api.group import (
    FORCE_DELETE_ANNOTATION,
    PAUSED_ANNOTATION,
    TARGET_LABEL,
    is_deletion_forced,
    is_paused,
)
from steersman_databases.api.kstatus import with_kstatus
from steersman_databases.core.annotation_warnings import AnnotationWarnings
from steersman_databases.core.api_errors import ApiErrorTracker, is_namespace_terminating, is_rejection
from steersman_databases.core.backoff import BackOff
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.outcome import (
    error_reason,
    error_with_advice,
    with_advice,
    with_webhooks_condition,
)
from steersman_databases.engines import EngineError, SqlCredentials
from steersman_databases.engines.errors import AccessDenied, DropBlocked, ObjectsMissing
from steersman_databases.engines.sql.desired import PasswordDirective
from steersman_databases.engines.sql.inspection import Inspection, InspectionScope
from steersman_databases.engines.sql.ownership_marks import require_same_namespace, retention_reason
from steersman_databases.engines.sql.sql_plan import SqlChange as ServerChange
from steersman_databases.engines.sql.sql_plan import SqlPlan
from steersman_databases.sql.desired import desired_user, referenced_names
from steersman_databases.sql.inspector.server_inspector import NoSlotFree, ServerInspector
from steersman_databases.sql.name_ownership import NameOwnership, database_naming_owner, require_namespace_rights
from steersman_databases.sql.object_marks import ObjectMarks
from steersman_databases.sql.server_resolver import (
    ResolvedServer,
    ServerNotResolved,
    ServerResolver,
    SqlEngineFactory,
    cluster_of,
    host_of,
)
from steersman_databases.sql.settings import SqlSettings
from steersman_databases.sql.tenancy import is_cross_namespace
from steersman_databases.sql.user.password_rotation import DesiredPasswords
from steersman_databases.sql.user.user_credentials import (
    ProvisionedUser,
    ProvisioningFailed,
    UserCredentials,
    belongs_to,
    require_complete,
    secret_key,
)

FINALIZER = "databases.steersman.dev/user"
KIND = DatabaseUser.api_resource.kind
SUCCEEDED = "The user provisioning has succeeded."
_FAILED = "The user provisioning has failed: "

_NAMESPACE_TERMINATING = "its namespace is being deleted"

_MAX_MESSAGE_LENGTH = 1024


class TargetFilter:
    """Selects the users of this operator.

    Args:
        target: value of the label `target`; None selects all users.
    """

    def __init__(self, target: str | None) -> None:
        self._target = target.lower() if target else None

    def __call__(self, change: InformerEvent[DatabaseUser]) -> bool:
        return any(self.matches(user) for user in (change.old, change.new) if user is not None)

    def matches(self, user: DatabaseUser) -> bool:
        """Return True if this operator reconciles the user."""
        return self._target is None or user.metadata.labels.get(TARGET_LABEL, "").lower() == self._target


class UserReconciler(RequestReconciler[DatabaseUser]):
    """Reconciles one user on one server, with its privileges.

    Args:
        context: from the controller.
        sql_engine_for: returns an engine by its name.
        inspector: shared with the controller of databases.
        target_filter: selects the users of this operator.
        settings: settings of this installation.
    """

    def __init__(
        self,
        context: ReconcilerContext,
        sql_engine_for: SqlEngineFactory,
        inspector: ServerInspector,
        target_filter: TargetFilter,
        settings: SqlSettings = SqlSettings(),  # noqa: B008
    ) -> None:
        super().__init__(context)
        self._resolver = ServerResolver(self.client, sql_engine_for, self.runtime.clock, settings.server_networks)
        self._inspector = inspector
        self._target_filter, self._serves_webhooks = target_filter, settings.serves_webhooks
        self._marks = ObjectMarks(self.client)
        self._name_ownership = NameOwnership(self.client, self._resolver, inspector, self._marks)
        self._api_errors = ApiErrorTracker(self.runtime.clock)
        self._annotation_warnings = AnnotationWarnings(self.events)
        self._backoff = BackOff()

    async def reconcile(self, request: Request) -> Result:
        user = await self.client.get_or_none(DatabaseUser, request)
        if user is None or not self._target_filter.matches(user):
            self._inspector.forget(KIND, request)
            self._annotation_warnings.forget(request)
            self._backoff.forget(request)
            return Result()
        self._annotation_warnings.check_common(user)
        deleted = user.metadata.deletion_timestamp is not None
        if is_paused(user) and not deleted:
            self._inspector.forget(KIND, request)
            await self._write_status(user, user.status, None)
            return Result()
        try:
            if deleted:
                await self._delete(user)
                return Result()
            user = await add_finalizer(self.client, user, FINALIZER)
            return await self._provision(user)
        except NoSlotFree as busy:
            return Result(requeue_after=busy.retry_after)
        except ProvisioningFailed as failed:
            return await self._report_failure(user, failed)
        except ApiError as error:
            if is_namespace_terminating(error):
                return Result()
            if not (cause := self._api_errors.reason(request, error)):
                raise
            reported = await self._report_failure(user, ProvisioningFailed(str(error), cause=cause))
            if not is_rejection(error):
                raise
            return reported

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        """Record the outcome of a reconcile; the next one reports it."""
        self._api_errors.record(request, outcome.error)

    async def _provision(self, user: DatabaseUser) -> Result:
        try:
            _require_same_server(user)
            resolved = await self._resolver.resolve(user)
            await self._name_ownership.require_oldest(user, resolved)
            require_namespace_rights(user, resolved.namespace)
        except ServerNotResolved as reason:
            self._inspector.forget(KIND, user.key)
            raise ProvisioningFailed(with_advice(str(reason), reason.reason), cause=reason.reason) from None
        except EngineError as error:
            raise _refused(error) from error
        try:
            provisioned = await (
                self._provision_login(user, resolved) if user.spec.login else self._provision_role(user, resolved)
            )
        except (ProvisioningFailed, ApiError) as failure:
            if isinstance(failure, ProvisioningFailed):
                failure.server = str(resolved.server.endpoint)
            await self._lock_expired(user, resolved)
            raise
        status = DatabaseUserStatus(
            observed_generation=user.metadata.generation,
            conditions=user.status.conditions,
            server=provisioned.server,
            secret_name=provisioned.secret,
            last_rotation_time=provisioned.rotated_at,
        )
        ready = UserCondition(type="Ready", status="True", reason="ProvisionSucceeded", message=SUCCEEDED)
        await self._write_status(user, status, ready)
        self._backoff.forget(user.key)
        if provisioned.next_wakeup is None:
            return Result()
        return Result(
            requeue_after=max((provisioned.next_wakeup - self.runtime.clock.now()).total_seconds(), 0.0) + 0.001
        )

    async def _provision_role(self, user: DatabaseUser, resolved: ResolvedServer) -> ProvisionedUser:
        """Provision a role without a login."""
        missing = await self._reconcile_on_server(
            user, resolved, DesiredPasswords(PasswordDirective.NONE, None, user.spec.valid_until)
        )
        secret = await get_cached_or_live(self.client, Secret, secret_key(user))
        if secret is not None and belongs_to(secret, user):
            await self.client.delete(Secret, secret.key, uid=secret.metadata.uid)
        return require_complete(ProvisionedUser(str(resolved.server.endpoint), None, None, None), missing)

    async def _provision_login(self, user: DatabaseUser, resolved: ResolvedServer) -> ProvisionedUser:
        user_credentials = UserCredentials(self.client, self.events, user, resolved, self.runtime.clock.now())
        rotation_state = await user_credentials.start_rotation()
        as_wanted = user_credentials.desired_passwords(rotation_state)
        missing = await self._reconcile_on_server(user_credentials.effective_user(as_wanted), resolved, as_wanted)
        if rotation_state.credentials.next is not None:
            await self._verify_next_password(resolved, rotation_state.credentials.next, user)
        credentials, secret = await user_credentials.finish_rotation(rotation_state)
        next_wakeup = user_credentials.next_wakeup(rotation_state.interval, credentials, secret)
        provisioned = ProvisionedUser(
            str(resolved.server.endpoint), secret.metadata.name, credentials.rotated_at, next_wakeup
        )
        return require_complete(provisioned, missing, user_credentials.deferred_attributes(as_wanted, credentials))

    async def _reconcile_on_server(
        self, user: DatabaseUser, resolved: ResolvedServer, as_wanted: DesiredPasswords
    ) -> str:
        """Reconcile the user on the server. Missing objects are returned: they must not delay a password rotation."""
        guest = is_cross_namespace(user, resolved.namespace)
        desired = desired_user(
            user, as_wanted, await self._marks.mark_of(user), cross_namespace=guest, expired=self._is_expired(user)
        )
        try:
            resolved.sql_engine.check(desired, resolved.server.login.username)
            for field, name in referenced_names(user):
                resolved.sql_engine.check_name(field, name)
            changes = await self._inspector.reconcile(resolved, KIND, user.key, (desired,))
        except ObjectsMissing as error:
            self._emit_changes(user, error.changes)
            return error_with_advice(error)
        except EngineError as error:
            self._emit_changes(user, error.changes)
            raise _refused(error) from error
        self._emit_changes(user, changes)
        return ""

    async def _lock_expired(self, user: DatabaseUser, resolved: ResolvedServer) -> None:
        """Lock an expired user where the server does not, whatever else fails."""
        one_account = resolved.sql_engine.rotation_username(user.spec.user) == user.spec.user
        if not (self._is_expired(user) and one_account):
            return
        kept = replace(user.spec, roles=(), grants=(), undeclared_grants="Keep", database=None, reassign_to=None)
        without_login = replace(user, spec=kept)
        password = PasswordDirective.UNCHANGED if user.spec.login else PasswordDirective.NONE
        # The observed generation is reported whatever the outcome.
        with suppress(ProvisioningFailed, NoSlotFree):
            await self._reconcile_on_server(
                without_login, resolved, DesiredPasswords(password, None, user.spec.valid_until)
            )

    def _is_expired(self, user: DatabaseUser) -> bool:
        end = user.spec.valid_until
        return end is not None and end <= self.runtime.clock.now()

    async def _verify_next_password(
        self, resolved: ResolvedServer, credentials: SqlCredentials, user: DatabaseUser
    ) -> None:
        """Check that the next password opens a session before applications receive it. Needs a database."""
        if not user.database:
            return
        try:
            opened = await self._can_log_in(resolved, credentials, user, user.database)
        except EngineError as error:
            raise _refused(error) from error
        if not opened:
            raise ProvisioningFailed(
                f"the next password of {credentials.username} is rejected for database {user.database}", None
            )

    async def _can_log_in(
        self, resolved: ResolvedServer, credentials: SqlCredentials, user: DatabaseUser, database: str
    ) -> bool:
        try:
            return await resolved.sql_engine.can_log_in(resolved.server, credentials, database)
        except AccessDenied:
            # This login cannot be tried from here: access rules for the user's own name may not admit its second
            # name.
            if not await self._inspector.is_effective(
                resolved, KIND, user.key, credentials, user.spec.user, database
            ):
                raise
            return True

    async def _delete(self, user: DatabaseUser) -> None:
        self._inspector.forget(KIND, user.key)
        if FINALIZER not in user.metadata.finalizers:
            return
        left = await self._drop(user)
        if left and (server := user.status.server):
            self.events.normal(user, "UserRetained", f"user {user.spec.user} was not dropped on {server}: {left}")
        await remove_finalizer(self.client, user, FINALIZER)

    async def _drop(self, user: DatabaseUser) -> str:
        """Drop the user. Returns the reason if it is retained."""
        if user.spec.deletion_policy != "Delete":
            return f"deletionPolicy is {user.spec.deletion_policy}"
        if is_deletion_forced(user):
            return f"{FORCE_DELETE_ANNOTATION} is true"
        try:
            _require_same_server(user)
            resolved = await self._resolver.resolve(user)
        except ProvisioningFailed:
            if await self._resolver.namespace_is_terminating(user):
                return _NAMESPACE_TERMINATING
            raise
        except ServerNotResolved as reason:
            if reason.gone:
                return str(reason)
            # Deletion must not wait for a Secret that is gone.
            if await self._resolver.namespace_is_terminating(user):
                return _NAMESPACE_TERMINATING
            raise ProvisioningFailed(with_advice(str(reason), reason.reason), cause=reason.reason) from None
        name = user.spec.user
        needed = await database_naming_owner(self.client, user, name, resolved.namespace)
        names = frozenset({name, resolved.sql_engine.rotation_username(name)})
        scope = InspectionScope(users=names, dropped_databases=names)
        mark, new_owner, left = await self._marks.mark_of(user), user.spec.reassign_to, ""
        if new_owner:
            scope |= InspectionScope(users=frozenset({new_owner}))

        def planner(inspection: Inspection) -> SqlPlan:
            nonlocal left
            left = retention_reason(inspection.users.get(name), mark)
            if new_owner and is_cross_namespace(user, resolved.namespace):
                require_same_namespace(inspection, [new_owner], mark)
            plan = resolved.sql_engine.plan_drop_user(inspection, name, mark, new_owner)
            if plan and needed:
                raise DropBlocked(needed, "Set another owner there")
            return plan

        try:
            changes = await self._inspector.execute(resolved, KIND, user.key, scope, planner)
            self._emit_changes(user, changes)
            return left
        except EngineError as error:
            self._emit_changes(user, error.changes)
            await self._lock_expired(user, resolved)
            raise _refused(error) from error

    def _emit_changes(self, user: DatabaseUser, changes: tuple[ServerChange, ...]) -> None:
        for change in changes:
            self.events.normal(user, change.reason, change.message)

    async def _report_failure(self, user: DatabaseUser, failed: ProvisioningFailed) -> Result:
        message, forced = f"{_FAILED}{failed}", _force_delete_hint(user)
        max_length = _MAX_MESSAGE_LENGTH - len(forced)
        message = (message if len(message) <= max_length else f"{message[: max_length - 1]}…") + forced
        ready = UserCondition(type="Ready", status="False", reason="ProvisionFailed", message=message)
        previous = user.status
        server = failed.server or previous.server
        status = replace(previous, observed_generation=user.metadata.generation, server=server)
        if (provisioned := failed.provisioned) is not None:
            status = replace(status, secret_name=provisioned.secret, last_rotation_time=provisioned.rotated_at)
        await self._write_status(user, status, ready, (failed.cause,))
        return Result(requeue_after=failed.retry_seconds or self._backoff.next_delay(user.key))

    async def _write_status(
        self, user: DatabaseUser, status: DatabaseUserStatus, ready: UserCondition | None, causes: Sequence[str] = ()
    ) -> None:
        """Write `status` with condition `ready`. None keeps the previous one and reports that the user is paused.

        Args:
            causes: reasons of a failure.
        """
        now = self.runtime.clock.now()
        conditions = tuple(c for c in status.conditions if c.type != "Paused" or ready is None)
        reported = ready or UserCondition(
            type="Paused",
            status="True",
            reason="ByAnnotation",
            message=f"the operator writes nothing while {PAUSED_ANNOTATION} is true",
        )
        reported = replace(reported, observed_generation=user.metadata.generation)
        conditions = with_webhooks_condition(
            conditions, UserCondition, user, now, served=self._serves_webhooks, setter=set_user_condition
        )
        conditions = set_user_condition(conditions, reported, now)
        status = replace(status, conditions=with_kstatus(conditions, now, causes=causes, setter=set_user_condition))
        if status == user.status:
            return
        # The cache may lag behind our last status, and an Event must not be emitted twice.
        previous_value = (await self.client.live.get(DatabaseUser, user.key)).status
        await self.client.apply_status(user, status)
        known = find_condition(previous_value.conditions, reported.type)
        if known is None or (known.status, known.message) != (reported.status, reported.message):
            emit_event = self.events.warning if reported.status == "False" else self.events.normal
            emit_event(user, reported.reason, reported.message)


def _refused(error: EngineError) -> ProvisioningFailed:
    return ProvisioningFailed(error_with_advice(error), None, cause=error_reason(error))


def _require_same_server(user: DatabaseUser) -> None:
    """Reject a label that names another cluster than before.

    The user would stay on the previous server without an owner.

    Raises:
        ProvisioningFailed: the label names another server.
        ServerNotResolved: it names none.
    """
    previous = user.status.server
    if user.spec.server_ref is None and previous and previous.rpartition(":")[0] != host_of(cluster_of(user)[1]):
        raise ProvisioningFailed(
            f"the user may exist on {previous}, and the label {TARGET_LABEL} now names another cluster."
            " Restore the label, or delete this DatabaseUser while it names the previous cluster"
        )


def _force_delete_hint(user: DatabaseUser) -> str:
    """Hint that forces the deletion of a waiting user; empty for others."""
    if user.metadata.deletion_timestamp is None or user.spec.deletion_policy != "Delete" or is_deletion_forced(user):
        return ""
    return f". To delete the object without dropping the user, annotate it with {FORCE_DELETE_ANNOTATION}=true"
