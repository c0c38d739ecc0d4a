"""A ``Database`` on a cluster, its own included, or on any server."""

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
from steersman_databases.api.conditions import DATABASE
from steersman_databases.api.group import FORCE_DELETE, is_forced
from steersman_databases.clusters.desires import claim_of, database_of, owner_of
from steersman_databases.clusters.tenancy import is_guest
from steersman_databases.controllers.lookup import find
from steersman_databases.controllers.marks import ClusterMark
from steersman_databases.controllers.outcome import Blocked, Outcome, advised, reason_of, with_next_step
from steersman_databases.controllers.own_cluster import OwnCluster
from steersman_databases.controllers.rivals import Rivals, named_owner, require_tenant
from steersman_databases.controllers.servers import Located, NotLocated, Servers
from steersman_databases.controllers.surveys import Surveys
from steersman_databases.engines import Credentials, Endpoint, EngineError, InvalidName, ServerUnreachable
from steersman_databases.engines.claims import retained
from steersman_databases.engines.desired import Claim, DesiredDatabase
from steersman_databases.engines.errors import OwnerMissing, Raced, StillNeeded
from steersman_databases.engines.plan import Change, Plan
from steersman_databases.engines.server import Server, TLSMode
from steersman_databases.engines.survey import Scope, Survey
from steersman_databases.resources import Names, is_ours, labels_of, owned_by
from steersman_databases.resources.connections import connection_entries, database_secret

KIND = Database.api_resource.kind
_LEFT_SECONDS = 300.0
"""Nobody tells when a user that is left is needed no more."""


@dataclass(frozen=True, slots=True)
class PlacedDatabase:
    """One ``Database`` and what it needs to be worked on."""

    client: CachedClient
    events: EventRecorder
    servers: Servers
    surveys: Surveys
    mark: ClusterMark
    database: Database
    cluster: OwnCluster | None
    """Where the database made its server."""

    async def ensure(self) -> tuple[Endpoint, Outcome]:
        """Database, owner and Secret as declared, and where applications connect to.

        Raises:
            Blocked: not now.
            ServerBusy: others go first.
        """
        database = self.database
        located = await self._located()
        claim = claim_of(database, await self.mark.read())
        desired = database_of(database, claim, guest=is_guest(database, located.home))
        owner = None
        if not database.spec.owner:
            secret = await self._application(located, desired)
            owner = owner_of(database, _password_in(secret), claim)
        wanted = (desired,) if owner is None else (owner, desired)
        try:
            for each in wanted:
                located.contents.check(each, located.server.login.username)
            self._tell(await self.surveys.settle(located, KIND, database.key, wanted))
            left = await self._drop_former(located, claim) if owner is None else ""
        except EngineError as error:
            self._tell(error.changes)
            blocked = self._blocked(error)
            blocked.endpoint = self._shown(located.server).endpoint
            raise blocked from error
        told = f"database {database.database_name} " + (
            f"and user {database.username} are as declared" if owner is not None else "is as declared"
        )
        if left:
            told += f"; user {database.own_username}, made for it before, was not dropped: {left}"
        return self._shown(located.server).endpoint, Outcome(
            phase="Ready", reason="DatabaseReady", message=told, retry_after=_LEFT_SECONDS if left else None
        )

    async def delete(self) -> None:
        """Drops database and owner where that is declared, or their cluster, and lets what is retained be.

        So is an owner who owns more on the server, with its Secret.

        Raises:
            Blocked: it waits for the server.
            ServerBusy: others go first.
        """
        self.surveys.forget(KIND, self.database.key)
        if self.cluster is not None:
            await self.cluster.delete()
            if self.database.spec.deletion_policy == "Delete":
                await self._delete_secret()
            return
        if is_forced(self.database):
            # The Secret lives as long as what it opens, and nobody knows whether that ever goes.
            await self._retained(f"{FORCE_DELETE} is true", kept=True)
            return
        if self.database.spec.deletion_policy != "Delete":
            await self._retained(f"deletionPolicy is {self.database.spec.deletion_policy}", kept=True)
            return
        try:
            located = await self.servers.locate(self.database)
        except NotLocated as reason:
            if not reason.gone and not await self.servers.ends_with_its_namespace(self.database):
                raise self._waiting(str(reason)) from None
            await self._retained(str(reason), kept=False)
        else:
            claim = claim_of(self.database, await self.mark.read())
            try:
                left, owned = await self._drop_database(located, claim)
                if left and owned:
                    await self._retained(left, kept=True)
                    return
                if left:
                    told = f"database {self.database.database_name} was not dropped: {left}"
                    self.events.normal(self.database, "DataRetained", told)
                if left := await self._drop_owner(located, claim):
                    told = f"user {self.database.own_username} was not dropped: {left}"
                    self.events.normal(self.database, "DataRetained", told + await self._kept("it"))
                    return
            except EngineError as error:
                self._tell(error.changes)
                raise self._waiting(str(error)) from error
        await self._delete_secret()

    async def _located(self) -> Located:
        try:
            located = await self.servers.locate(self.database)
            await Rivals(self.client, self.servers, self.surveys, self.mark).require_first(self.database, located)
            require_tenant(self.database, located.home)
        except NotLocated as reason:
            self.surveys.forget(KIND, self.database.key)
            message = advised(str(reason), reason.reason)
            raise Blocked("Pending", reason.reason, message, retry_after=30.0) from None
        except EngineError as error:
            raise self._blocked(error) from error
        return located

    async def _application(self, located: Located, desired: DesiredDatabase) -> Secret:
        """The Secret for applications, made before what it opens, and after it is known that there may be a database.

        Without one the owner would be of no use, and its login known to nobody.
        """
        database = self.database
        key = Names(database.key).application_secret
        secret = await find(self.client, Secret, key)
        if secret is not None and not is_ours(secret, database):
            raise Blocked("Failed", "NameTaken", f"Secret {key.name} exists and was not made for this Database")
        if secret is None and self.cluster is None:
            await self._require_to_be_had(located, desired)
        credentials = Credentials(database.username, _password_in(secret) or secrets.token_urlsafe(24))
        server = self._shown(located.server)
        data = connection_entries(server, located.contents, credentials, database.database_name)
        claims = () if self.cluster is None else await self.cluster.claims()
        if secret is None:
            created = await self.client.create(database_secret(key, labels_of(database), data, claims))
            self.events.normal(database, "Created", f"created Secret {key.name}")
            return created
        complete = all(secret.data.get(name) == value for name, value in data.items())
        owners = {o.uid for o in secret.metadata.owner_references}
        missing = [owned_by(c) for c in claims if c.metadata.uid not in owners]
        if complete and not missing:
            return secret
        # Not applied by force: a password that somebody has just set must not be overwritten by the one we read.
        metadata: dict[str, Any] = {"resourceVersion": secret.metadata.resource_version}
        if missing:
            metadata["ownerReferences"] = to_builtins([*secret.metadata.owner_references, *missing])
        patched = await self.client.patch(Secret, key, MergePatch({"metadata": metadata, "data": to_builtins(data)}))
        if not complete:
            self.events.normal(database, "SecretRepaired", f"completed Secret {key.name}")
        return patched

    async def _require_to_be_had(self, located: Located, desired: DesiredDatabase) -> None:
        try:
            located.contents.check(desired, located.server.login.username)
            survey = await self.surveys.look(located, KIND, self.database.key, Scope.of([desired]))
            with suppress(OwnerMissing):
                located.contents.plan_database(survey, desired)
        except EngineError as error:
            raise self._blocked(error) from error

    def _shown(self, server: Server) -> Server:
        """The server as applications are told of it."""
        if self.cluster is None:
            return server
        # Encrypted and not verified by the URI: it is to work without the authority's certificate in a file.
        return replace(
            server,
            endpoint=Endpoint(Names(self.database.key).host, server.endpoint.port),
            verification=replace(server.verification, mode=TLSMode.REQUIRE),
        )

    async def _drop_database(self, located: Located, claim: Claim) -> tuple[str, bool]:
        """Drops the database, or says why it is left as it is, and whether it is the own user's nevertheless."""
        name, left, owned = self.database.database_name, "", False

        def planned(survey: Survey) -> Plan:
            nonlocal left, owned
            plan, state = located.contents.plan_drop_database(survey, name, claim), survey.databases.get(name)
            left = "" if plan else retained(state, claim)
            # Without a mark nothing else says on MySQL whose it is.
            may = {one.grantee for one in state.privileges} | {state.owner} if state is not None else set[str]()
            owned = self.database.own_username in may
            return plan

        await self._carry_out(located, planned)
        return left, owned

    async def _drop_former(self, located: Located, claim: Claim) -> str:
        """Drops who was the owner before another one was declared, or says why it is left as it is, with its Secret.

        The Secret is made before its user, and goes after it: without one there is nobody to look for. One that a
        former object of this name left may open what is retained on another server.
        """
        database, secret, here = self.database, await self._own_secret(), self._shown(located.server).endpoint
        if database.spec.owner == database.own_username or secret is None:
            return ""
        if [secret.data.get(entry) for entry in ("host", "port")] != [here.host.encode(), str(here.port).encode()]:
            return ""
        if database.spec.deletion_policy != "Delete":
            left = f"deletionPolicy is {database.spec.deletion_policy}"
        elif not (left := await self._drop_owner(located, claim)):
            await self._delete_secret()
            return ""
        return left + await self._kept("it")

    async def _drop_owner(self, located: Located, claim: Claim) -> str:
        """Drops the owner, or says why it is left as it is: whoever has more on the server goes on with it."""
        name, left = self.database.own_username, ""
        needed, secret = await named_owner(self.client, self.database, name, located.home), await self._own_secret()

        def planned(survey: Survey) -> Plan:
            nonlocal left
            try:
                plan = located.contents.plan_drop_user(survey, name, claim, None)
            except StillNeeded as needs:
                plan = Plan(failure=needs)
            if isinstance(plan.failure, StillNeeded):
                left = plan.failure.cause
            elif plan:
                left = needed
            if not left:
                return plan
            # Nor is it shut out, as a user that waits to be dropped: nothing here waits. An attempt before may have.
            password = _password_in(secret)
            if not password or (state := survey.users.get(name)) is None or (state.login and not state.locked):
                return Plan()
            return located.contents.plan_user(survey, owner_of(self.database, password, claim))

        await self._carry_out(located, planned, drops_owner=True)
        return left

    async def _carry_out(
        self, located: Located, planned: Callable[[Survey], Plan], *, drops_owner: bool = False
    ) -> None:
        database = self.database
        names = frozenset({database.own_username, located.contents.second_username(database.own_username)})
        dropped = names if drops_owner else frozenset[str]()
        scope = Scope(users=names, databases=frozenset({database.database_name}), dropped=dropped)
        self._tell(await self.surveys.carry_out(located, KIND, database.key, scope, planned))

    async def _retained(self, why: str, *, kept: bool) -> None:
        """Tells what stays; ``kept``: the Secret, too."""
        told = f"database {self.database.database_name} and its owner were not dropped: {why}"
        opened = f"user {self.database.own_username}" if self.database.spec.owner else "them"
        self.events.normal(self.database, "DataRetained", told + (await self._kept(opened) if kept else ""))

    async def _kept(self, what: str) -> str:
        """What to tell of the Secret where it stays, too."""
        secret = await self._own_secret()
        return f"; Secret {secret.metadata.name} opens {what}, and is kept" if secret is not None else ""

    async def _delete_secret(self) -> None:
        secret = await self._own_secret()
        if secret is not None:
            await self.client.delete(Secret, secret.key, uid=secret.metadata.uid)

    async def _own_secret(self) -> Secret | None:
        secret = await find(self.client, Secret, Names(self.database.key).application_secret)
        return secret if secret is not None and is_ours(secret, self.database) else None

    def _blocked(self, error: EngineError) -> Blocked:
        if isinstance(error, ServerUnreachable):
            if self.cluster is None:
                return Blocked("Pending", "ServerUnreachable", with_next_step(error), backs_off=True)
            # A server of its own is heard of in other ways, and one that has just been made is starting.
            return Blocked("Provisioning", "ServerUnreachable", with_next_step(error), retry_after=5.0)
        if isinstance(error, Raced):
            return Blocked("Provisioning", "SqlFailed", str(error), retry_after=2.0)
        reason, told = reason_of(error, DATABASE["Ready"]), with_next_step(error)
        if isinstance(error, InvalidName) and error.field == "password":
            told = f"Secret {Names(self.database.key).application_secret.name}: {told}"
        return Blocked("Failed", reason, told, backs_off=True)

    def _waiting(self, why: str) -> Blocked:
        return Blocked("Deleting", "Deleting", not_dropped(self.database, why), retry_after=15.0)

    def _tell(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            self.events.normal(self.database, change.reason, change.message)


def _password_in(secret: Secret | None) -> str:
    return secret.data.get("password", b"").decode(errors="replace") if secret is not None else ""


def not_dropped(database: Database, why: str) -> str:
    """What to tell while a database that is being deleted waits, and how it is let go, if it can be."""
    forced = is_forced(database)
    if database.makes_cluster or database.spec.deletion_policy != "Delete" or forced:
        return why
    advice = f"annotate it with {FORCE_DELETE}=true to delete it without dropping the database"
    return f"cannot drop the database: {why}; {advice}"
