"""Reconciles ``DatabaseUser``: its credentials, then the user on the server, then its connection Secret."""

from __future__ import annotations

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
from steersman_databases.api.group import FORCE_DELETE, PAUSED, TARGET_LABEL, is_forced, is_paused
from steersman_databases.api.users import set_user_condition
from steersman_databases.clusters.desires import claim_of, named_besides, user_of
from steersman_databases.clusters.schedule import Wanted
from steersman_databases.clusters.tenancy import is_guest
from steersman_databases.controllers.annotations import Annotations
from steersman_databases.controllers.backoff import BackOff
from steersman_databases.controllers.failures import Failures, is_of_its_end, is_refusal
from steersman_databases.controllers.logins import Failed, Provisioned, UserLogin, all_done, belongs_to, secret_key
from steersman_databases.controllers.lookup import find
from steersman_databases.controllers.marks import ClusterMark
from steersman_databases.controllers.outcome import advised, with_next_step
from steersman_databases.controllers.rivals import Rivals, named_owner, require_tenant
from steersman_databases.controllers.servers import ContentsOf, Located, NotLocated, Servers, cluster_of, host_of
from steersman_databases.controllers.surveys import ServerBusy, Surveys
from steersman_databases.engines import Credentials, EngineError
from steersman_databases.engines.claims import require_kin, retained
from steersman_databases.engines.desired import Claim, NoPassword
from steersman_databases.engines.errors import AccessRefused, ObjectsMissing, StillNeeded
from steersman_databases.engines.plan import Change as ServerChange
from steersman_databases.engines.plan import Plan
from steersman_databases.engines.survey import Scope, Survey

FINALIZER = "databases.steersman.dev/user"
KIND = DatabaseUser.api_resource.kind
SUCCEEDED = "The user provisioning has succeeded."
_FAILED = "The user provisioning has failed: "

_NAMESPACE_ENDS = "its namespace is being deleted"

_LONGEST_MESSAGE = 1024


class TargetFilter:
    """Which users this operator is for.

    Args:
        target: a value of the label ``target``; None for all users.
    """

    def __init__(self, target: str | None) -> None:
        self._target = target.lower() if target else None

    def __call__(self, change: InformerEvent[DatabaseUser]) -> bool:
        return any(self.takes(user) for user in (change.old, change.new) if user is not None)

    def takes(self, user: DatabaseUser) -> bool:
        """Whether a user is for this operator."""
        return self._target is None or user.metadata.labels.get(TARGET_LABEL, "").lower() == self._target


class UserReconciler(RequestReconciler[DatabaseUser]):
    """Keeps one user on one server, with all that it may do.

    Args:
        context: from the controller.
        contents: finds an engine by its name.
        surveys: shared with the controller of databases.
        targeted: which users are for this operator.
    """

    def __init__(
        self, context: ReconcilerContext, contents: ContentsOf, surveys: Surveys, targeted: TargetFilter
    ) -> None:
        super().__init__(context)
        self._servers = Servers(self.client, contents, self.runtime.clock)
        self._surveys = surveys
        self._targeted = targeted
        self._mark = ClusterMark(self.client)
        self._rivals = Rivals(self.client, self._servers, surveys, self._mark)
        self._failures = Failures(self.runtime.clock)
        self._annotations = Annotations(self.events)
        self._backoff = BackOff()

    async def reconcile(self, request: Request) -> Result:
        user = await self.client.get_or_none(DatabaseUser, request)
        if user is None or not self._targeted.takes(user):
            self._surveys.forget(KIND, request)
            self._annotations.forget(request)
            self._backoff.forget(request)
            return Result()
        self._annotations.look(user)
        deleted = user.metadata.deletion_timestamp is not None
        if is_paused(user) and not deleted:
            self._surveys.forget(KIND, request)
            await self._report(user, user.status, None)
            return Result()
        try:
            if deleted:
                await self._delete(user)
                return Result()
            user = await add_finalizer(self.client, user, FINALIZER)
            return await self._provision(user)
        except ServerBusy as busy:
            return Result(requeue_after=busy.retry_after)
        except Failed as failed:
            return await self._report_failure(user, failed)
        except ApiError as error:
            if is_of_its_end(error):
                return Result()
            if not self._failures.reason(request, error):
                raise
            told = await self._report_failure(user, Failed(str(error)))
            if not is_refusal(error):
                raise
            return told

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        """Keeps in mind how a reconcile ended; what is to be told of that, the next one tells."""
        self._failures.note(request, outcome.error)

    async def _provision(self, user: DatabaseUser) -> Result:
        try:
            _require_unmoved(user)
            located = await self._servers.locate(user)
            await self._rivals.require_first(user, located)
            require_tenant(user, located.home)
        except NotLocated as reason:
            self._surveys.forget(KIND, user.key)
            raise Failed(advised(str(reason), reason.reason)) from None
        except EngineError as error:
            raise Failed(with_next_step(error), None) from error
        try:
            done = await (self._with_login(user, located) if user.spec.login else self._without(user, located))
        except (Failed, ApiError) as failure:
            if isinstance(failure, Failed):
                failure.server = str(located.server.endpoint)
            await self._end(user, located)
            raise
        status = DatabaseUserStatus(
            observed_generation=user.metadata.generation,
            conditions=user.status.conditions,
            server=done.server,
            secret_name=done.secret,
            last_rotation_time=done.rotated,
        )
        ready = UserCondition(type="Ready", status="True", reason="ProvisionSucceeded", message=SUCCEEDED)
        await self._report(user, status, ready)
        self._backoff.forget(user.key)
        if done.wakes is None:
            return Result()
        return Result(requeue_after=max((done.wakes - self.runtime.clock.now()).total_seconds(), 0.0) + 0.001)

    async def _without(self, user: DatabaseUser, located: Located) -> Provisioned:
        """A role that nobody logs in as."""
        missing = await self._settle(user, located, Wanted(NoPassword.NONE, None, user.spec.valid_until))
        secret = await find(self.client, Secret, secret_key(user))
        if secret is not None and belongs_to(secret, user):
            await self.client.delete(Secret, secret.key, uid=secret.metadata.uid)
        return all_done(Provisioned(str(located.server.endpoint), None, None, None), missing)

    async def _with_login(self, user: DatabaseUser, located: Located) -> Provisioned:
        login = UserLogin(self.client, self.events, user, located, self.runtime.clock.now())
        turn = await login.begun()
        as_wanted = login.wanted(turn)
        missing = await self._settle(login.declared(as_wanted), located, as_wanted)
        if turn.held.following is not None:
            await self._try(located, turn.held.following, user)
        held, secret = await login.ended(turn)
        wakes = login.wakes(turn.every, held, secret)
        done = Provisioned(str(located.server.endpoint), secret.metadata.name, held.rotated, wakes)
        return all_done(done, missing or login.missing(as_wanted, held))

    async def _settle(self, user: DatabaseUser, located: Located, as_wanted: Wanted) -> str:
        """Makes the server hold it. What is waited for; that is no reason to keep a password from being rotated."""
        guest = is_guest(user, located.home)
        desired = user_of(user, as_wanted, await self._claim(user), guest=guest, ended=self._has_ended(user))
        try:
            located.contents.check(desired, located.server.login.username)
            for field, name in named_besides(user):
                located.contents.check_name(field, name)
            changes = await self._surveys.settle(located, KIND, user.key, (desired,))
        except ObjectsMissing as error:
            self._tell(user, error.changes)
            return with_next_step(error)
        except EngineError as error:
            self._tell(user, error.changes)
            raise Failed(with_next_step(error), None) from error
        self._tell(user, changes)
        return ""

    async def _end(self, user: DatabaseUser, located: Located) -> None:
        """What has ended is locked where the server itself does not see to it, whatever else cannot be done."""
        one_account = located.contents.second_username(user.spec.user) == user.spec.user
        if not (self._has_ended(user) and one_account):
            return
        kept = replace(user.spec, roles=(), grants=(), undeclared_grants="Keep", database=None, reassign_to=None)
        alone = replace(user, spec=kept)
        password = NoPassword.UNCHANGED if user.spec.login else NoPassword.NONE
        # Whatever this comes to, what it follows is told.
        with suppress(Failed, ServerBusy):
            await self._settle(alone, located, Wanted(password, None, user.spec.valid_until))

    def _has_ended(self, user: DatabaseUser) -> bool:
        end = user.spec.valid_until
        return end is not None and end <= self.runtime.clock.now()

    async def _try(self, located: Located, credentials: Credentials, user: DatabaseUser) -> None:
        """Applications are given nothing that does not open. Without a database there is nothing to open."""
        if not user.database:
            return
        try:
            opened = await self._opens(located, credentials, user, user.database)
        except EngineError as error:
            raise Failed(with_next_step(error), None) from error
        if not opened:
            raise Failed(
                f"{credentials.username} is not let in to database {user.database} with the next password", None
            )

    async def _opens(self, located: Located, credentials: Credentials, user: DatabaseUser, database: str) -> bool:
        try:
            return await located.contents.opens(located.server, credentials, database)
        except AccessRefused:
            # It cannot be tried from here. Rules were written for the user's own name: under its second one
            # applications may be let in nowhere.
            if not await self._surveys.in_force(located, KIND, user.key, credentials, user.spec.user, database):
                raise
            return True

    async def _delete(self, user: DatabaseUser) -> None:
        self._surveys.forget(KIND, user.key)
        if FINALIZER not in user.metadata.finalizers:
            return
        left = await self._drop(user)
        if left and (server := user.status.server):
            self.events.normal(user, "UserRetained", f"user {user.spec.user} was not dropped on {server}: {left}")
        await remove_finalizer(self.client, user, FINALIZER)

    async def _drop(self, user: DatabaseUser) -> str:
        """Drops the user, or says why it is left as it is."""
        if user.spec.deletion_policy != "Delete":
            return f"deletionPolicy is {user.spec.deletion_policy}"
        if is_forced(user):
            return f"{FORCE_DELETE} is true"
        try:
            _require_unmoved(user)
            located = await self._servers.locate(user)
        except Failed:
            if await self._servers.ends_with_its_namespace(user):
                return _NAMESPACE_ENDS
            raise
        except NotLocated as reason:
            if reason.gone:
                return str(reason)
            # It must not wait for a Secret that went.
            if await self._servers.ends_with_its_namespace(user):
                return _NAMESPACE_ENDS
            raise Failed(advised(str(reason), reason.reason)) from None
        name = user.spec.user
        needed = await named_owner(self.client, user, name, located.home)
        both = frozenset({name, located.contents.second_username(name)})
        scope = Scope(users=both, dropped=both)
        claim, heir, left = await self._claim(user), user.spec.reassign_to, ""
        if heir:
            scope |= Scope(users=frozenset({heir}))

        def planned(survey: Survey) -> Plan:
            nonlocal left
            left = retained(survey.users.get(name), claim)
            if heir and is_guest(user, located.home):
                require_kin(survey, [heir], claim)
            plan = located.contents.plan_drop_user(survey, name, claim, heir)
            if plan and needed:
                raise StillNeeded(needed, "name another one there")
            return plan

        try:
            changes = await self._surveys.carry_out(located, KIND, user.key, scope, planned)
            self._tell(user, changes)
            return left
        except EngineError as error:
            self._tell(user, error.changes)
            await self._end(user, located)
            raise Failed(with_next_step(error), None) from error

    async def _claim(self, user: DatabaseUser) -> Claim:
        return claim_of(user, await self._mark.read())

    def _tell(self, user: DatabaseUser, changes: tuple[ServerChange, ...]) -> None:
        for change in changes:
            self.events.normal(user, change.reason, change.message)

    async def _report_failure(self, user: DatabaseUser, failed: Failed) -> Result:
        message, forced = f"{_FAILED}{failed}", _way_out(user)
        room = _LONGEST_MESSAGE - len(forced)
        message = (message if len(message) <= room else f"{message[: room - 1]}…") + forced
        ready = UserCondition(type="Ready", status="False", reason="ProvisionFailed", message=message)
        former = user.status
        server = failed.server or former.server
        status = replace(former, observed_generation=user.metadata.generation, server=server)
        if (done := failed.done) is not None:
            status = replace(status, secret_name=done.secret, last_rotation_time=done.rotated)
        await self._report(user, status, ready)
        return Result(requeue_after=failed.retry or self._backoff.next_delay(user.key))

    async def _report(self, user: DatabaseUser, status: DatabaseUserStatus, ready: UserCondition | None) -> None:
        """Writes ``status`` with the condition ``ready``; None leaves the former and says that the user is paused."""
        now = self.runtime.clock.now()
        conditions = tuple(c for c in status.conditions if c.type != "Paused" or ready is None)
        told = ready or UserCondition(
            type="Paused", status="True", reason="ByAnnotation", message=f"nothing is written while {PAUSED} is true"
        )
        told = replace(told, observed_generation=user.metadata.generation)
        status = replace(status, conditions=set_user_condition(conditions, told, now))
        if status == user.status:
            return
        # The cache may not hold our last status yet, and nobody should read the same news twice.
        former = (await self.client.live.get(DatabaseUser, user.key)).status
        await self.client.apply_status(user, status)
        known = find_condition(former.conditions, told.type)
        if known is None or (known.status, known.message) != (told.status, told.message):
            emit = self.events.warning if told.status == "False" else self.events.normal
            emit(user, told.reason, told.message)


def _require_unmoved(user: DatabaseUser) -> None:
    """A label can be changed: on the former server the user would stay, with its password, and be nobody's.

    Raises Failed, and NotLocated where none is named.
    """
    former = user.status.server
    if user.spec.server_ref is None and former and former.rpartition(":")[0] != host_of(cluster_of(user)[1]):
        raise Failed(
            f"the user may have been made on {former}, and the label {TARGET_LABEL} names another cluster now:"
            " set it back, or delete this DatabaseUser while it names the former"
        )


def _way_out(user: DatabaseUser) -> str:
    """How a user whose deletion waits is let go; empty for others."""
    if user.metadata.deletion_timestamp is None or user.spec.deletion_policy != "Delete" or is_forced(user):
        return ""
    return f"; annotate it with {FORCE_DELETE}=true to delete it without dropping the user"
