"""Reconciles ``Database``: storage and keys, then the server, then what is inside it, then the status."""

from __future__ import annotations

from steersman.controller import Context, Reconciler, Request, Result, add_finalizer, remove_finalizer
from steersman.errors import BadRequest, Forbidden, Invalid
from steersman_databases.api import Database
from steersman_databases.api.group import PAUSED, is_paused
from steersman_databases.controllers.deletion import FINALIZER, Deletion
from steersman_databases.controllers.lone_certificate import LoneCertificate
from steersman_databases.controllers.marks import ClusterMark
from steersman_databases.controllers.outcome import Blocked, Outcome, is_news, status_of
from steersman_databases.controllers.own_cluster import OwnCluster
from steersman_databases.controllers.patience import Patience
from steersman_databases.controllers.placed import PlacedDatabase
from steersman_databases.controllers.server import Server
from steersman_databases.controllers.servers import ContentsOf, Servers
from steersman_databases.controllers.storage import ADMINISTRATOR, Storage
from steersman_databases.controllers.surveys import ServerBusy, Surveys
from steersman_databases.engines import (
    AdministratorRejected,
    Change,
    Contents,
    Credentials,
    Desired,
    Endpoint,
    EngineError,
    InvalidName,
    ServerUnreachable,
    UnsupportedVersion,
    check_names,
    ensure,
    image,
)
from steersman_databases.engines.server import Verification
from steersman_databases.resources import Names, ServerImage

_SQL_TIMEOUT_SECONDS = 15.0


class DatabaseReconciler(Reconciler[Database]):
    """Keeps one server, one database and one user per ``Database``.

    Args:
        context: from the controller.
        contents: finds what is inside servers of an engine, by its name.
        surveys: shared with the controller of users.
    """

    def __init__(self, context: Context, contents: ContentsOf, surveys: Surveys) -> None:
        super().__init__(context)
        self._contents = contents
        self._servers = Servers(self.client, contents, self.runtime.clock)
        self._surveys = surveys
        self._mark = ClusterMark(self.client)
        self._patience = Patience(context.runtime.clock)

    async def reconcile(self, request: Request) -> Result:
        database = await self.client.find(Database, request)
        if database is None:
            self._surveys.forget(Database.api_resource.kind, request)
            return Result()
        engine = self._contents(database.engine)
        if is_paused(database) and database.metadata.deletion_timestamp is None:
            self._surveys.forget(Database.api_resource.kind, request)
            await self._report(database, _paused(database), None, engine)
            return Result()
        if database.has_own_server:
            endpoint: Endpoint | None = Endpoint(Names(database.key).host, engine.port)
            if database.metadata.deletion_timestamp is not None:
                outcome = await Deletion(self.client, self.events, database, self.runtime.clock).advance()
            else:
                outcome = await self._advance(database, engine)
        else:
            try:
                endpoint, outcome = await self._advance_placed(database, engine)
            except ServerBusy as busy:
                return Result(requeue_after=busy.retry_after)
        if outcome is None:
            return Result()
        await self._report(database, outcome, endpoint, engine)
        return Result(requeue_after=self._jittered(outcome.retry_after))

    async def _advance_placed(self, database: Database, engine: Contents) -> tuple[Endpoint | None, Outcome | None]:
        """One reconcile of a database on a cluster or on any server, and where applications connect to."""
        cluster = known = None
        if database.makes_cluster:
            cluster = OwnCluster(self.client, self.events, database)
            known = Endpoint(Names(database.key).host, engine.port)
        placed = PlacedDatabase(self.client, self.events, self._servers, self._surveys, self._mark, database, cluster)
        try:
            if database.metadata.deletion_timestamp is not None:
                if FINALIZER in database.metadata.finalizers:
                    await placed.delete()
                    await remove_finalizer(self.client, database, FINALIZER)
                return None, None
            await add_finalizer(self.client, database, FINALIZER)
            if cluster is not None:
                await cluster.ensure(engine)
            return await placed.ensure()
        except Blocked as blocked:
            return blocked.endpoint or known, blocked.outcome
        except (Forbidden, Invalid, BadRequest) as error:
            return known, _refused(error)

    async def _advance(self, database: Database, engine: Contents) -> Outcome | None:
        try:
            database = await add_finalizer(self.client, database, FINALIZER)
            return await self._provision(database, engine)
        except Blocked as blocked:
            return blocked.outcome
        except (Forbidden, Invalid, BadRequest) as error:
            return _refused(error)

    async def _provision(self, database: Database, engine: Contents) -> Outcome:
        reference = _check(database, engine)
        administrator, application = await Storage(self.client, self.events, database, engine).ensure()
        certificate = LoneCertificate(self.client, self.events, database, self.runtime.clock)
        shown = await certificate.ensure()
        runs = ServerImage(reference=reference, port=engine.port, certificate=shown.name)
        server = Server(self.client, self.events, database, runs)
        await server.ensure()
        await certificate.release()
        pod = await server.require_ready()
        await certificate.clean_up(pod)
        verification = await certificate.verification(pod)
        await self._ensure_contents(database, engine, administrator, application, verification)
        return Outcome(
            phase="Ready",
            reason="DatabaseReady",
            message=f"database {database.database_name} and user {database.username} are as declared",
        )

    async def _ensure_contents(
        self,
        database: Database,
        engine: Contents,
        administrator: Credentials,
        application: Credentials,
        verification: Verification,
    ) -> None:
        # In a namespace named as a top-level domain is (dev, app), the name without svc could be one of the internet.
        endpoint = Endpoint(f"{Names(database.key).host}.svc", engine.port)
        desired = Desired(database.database_name, application.username, application.password)
        try:
            with self._patience.spent_on(endpoint):
                done = await ensure(engine, endpoint, administrator, desired, verification, _SQL_TIMEOUT_SECONDS)
            self._tell(database, done)
        except EngineError as error:
            self._tell(database, error.changes)
            raise _blocked(error, database) from error

    def _tell(self, database: Database, changes: tuple[Change, ...]) -> None:
        for change in changes:
            self.events.normal(database, change.reason, change.message)

    async def _report(
        self, database: Database, outcome: Outcome, endpoint: Endpoint | None, engine: Contents
    ) -> None:
        status = status_of(database, outcome, endpoint, engine.uri_scheme, self.runtime.clock.now())
        if status == database.status:
            return
        # The cache may not hold our last status yet, and nobody should read the same news twice.
        former = (await self.client.live.get(Database, database.key)).status
        await self.client.apply_status(database, status)
        if is_news(former, status):
            emit = self.events.warning if outcome.phase in ("Failed", "Pending") else self.events.normal
            emit(database, outcome.reason, outcome.message)

    def _jittered(self, seconds: float | None) -> float | None:
        return None if seconds is None else seconds * (0.9 + 0.2 * self.runtime.random.random())


def _paused(database: Database) -> Outcome:
    """As ready as it was: nobody looks."""
    phase = database.status.phase if database.status is not None and database.status.phase else "Pending"
    message = f"nothing is written while {PAUSED} is true"
    return Outcome(phase=phase, reason="Paused", message=message, retry_after=None)


def _refused(error: Forbidden | Invalid | BadRequest) -> Outcome | None:
    """What to tell of a write that the API server refuses; nothing while the namespace goes."""
    if isinstance(error, Forbidden) and error.namespace_terminating:
        return None
    # Quota, admission policies, our own RBAC: the API server's words are the best advice there is. Not so
    # their reason, which may be anything where a webhook wrote it.
    return Outcome(phase="Failed", reason=type(error).__name__, message=str(error), retry_after=30.0)


def _check(database: Database, engine: Contents) -> str:
    """The image for a spec that can be satisfied. Raises Blocked."""
    try:
        check_names(engine, database.database_name, database.username, ADMINISTRATOR)
        return image(database.engine, database.version)
    except EngineError as error:
        raise _blocked(error, database) from error


def _blocked(error: EngineError, database: Database) -> Blocked:
    match error:
        case UnsupportedVersion():
            return Blocked("Failed", "UnsupportedVersion", f"spec.version: {error}", retry_after=None)
        case InvalidName(field="password"):
            secret = Names(database.key).application_secret.name
            return Blocked("Failed", "InvalidName", f"Secret {secret}: {error}")
        case InvalidName():
            return Blocked("Failed", "InvalidName", f"spec.{error.field}: {error}")
        case ServerUnreachable():
            return Blocked("Provisioning", "ServerUnreachable", str(error), retry_after=2.0)
        case AdministratorRejected():
            secret = Names(database.key).administrator_secret.name
            return Blocked("Failed", "AdministratorRejected", f"{error}: restore Secret {secret}")
        case _:
            return Blocked("Failed", "SqlFailed", str(error))
