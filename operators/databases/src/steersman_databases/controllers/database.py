"""Reconciles ``Database``: its own cluster where it makes one, then what is inside the server, then the status."""

from __future__ import annotations

from steersman.controller import ReconcileOutcome as Ending
from steersman.controller import (
    ReconcilerContext,
    Request,
    RequestReconciler,
    Result,
    add_finalizer,
    remove_finalizer,
)
from steersman.errors import ApiError
from steersman_databases.api import Database
from steersman_databases.api.group import PAUSED, is_paused
from steersman_databases.controllers.annotations import Annotations
from steersman_databases.controllers.backoff import BackOff
from steersman_databases.controllers.failures import REASONS, Failures, is_of_its_end, is_refusal
from steersman_databases.controllers.marks import ClusterMark
from steersman_databases.controllers.outcome import Blocked, Outcome, is_news, jittered, status_of
from steersman_databases.controllers.own_cluster import OwnCluster
from steersman_databases.controllers.placed import PlacedDatabase, not_dropped
from steersman_databases.controllers.servers import ContentsOf, Servers
from steersman_databases.controllers.surveys import ServerBusy, Surveys
from steersman_databases.engines import Contents, Endpoint
from steersman_databases.resources import Names

FINALIZER = "databases.steersman.dev/data"


class DatabaseReconciler(RequestReconciler[Database]):
    """Keeps one database and its owner per ``Database``, and the cluster that they are on where it makes one.

    Args:
        context: from the controller.
        contents: finds what is inside servers of an engine, by its name.
        surveys: shared with the controller of users.
    """

    def __init__(self, context: ReconcilerContext, contents: ContentsOf, surveys: Surveys) -> None:
        super().__init__(context)
        self._contents = contents
        self._servers = Servers(self.client, contents, self.runtime.clock)
        self._surveys = surveys
        self._mark = ClusterMark(self.client)
        self._failures = Failures(self.runtime.clock)
        self._annotations = Annotations(self.events)
        self._backoff = BackOff()

    async def reconcile(self, request: Request) -> Result:
        database = await self.client.get_or_none(Database, request)
        if database is None:
            self._surveys.forget(Database.api_resource.kind, request)
            self._annotations.forget(request)
            self._backoff.forget(request)
            return Result()
        self._annotations.look(database)
        engine = self._contents(database.engine)
        if is_paused(database) and database.metadata.deletion_timestamp is None:
            self._surveys.forget(Database.api_resource.kind, request)
            await self._report(database, _paused(database), None, engine)
            return Result()
        try:
            endpoint, outcome = await self._advance(database, engine)
        except ServerBusy as busy:
            return Result(requeue_after=busy.retry_after)
        except ApiError as error:
            if is_of_its_end(error):
                return Result()
            if not (reason := self._failures.reason(request, error)):
                raise
            outcome = _failed(database, reason, error)
            await self._report(database, outcome, _own_endpoint(database, engine), engine)
            if not is_refusal(error):
                raise
            return self._again(request, outcome)
        if outcome is None:
            return Result()
        await self._report(database, outcome, endpoint, engine)
        return self._again(request, outcome)

    async def update_status(self, request: Request, outcome: Ending) -> None:
        """Keeps in mind how a reconcile ended; what is to be told of that, the next one tells."""
        self._failures.note(request, outcome.error)

    async def _advance(self, database: Database, engine: Contents) -> tuple[Endpoint | None, Outcome | None]:
        """One reconcile, and where applications connect to."""
        cluster = OwnCluster(self.client, self.events, database) if database.makes_cluster else None
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
            return blocked.endpoint or _own_endpoint(database, engine), blocked.outcome

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
            alarming = outcome.phase in ("Failed", "Pending") or outcome.reason in REASONS
            emit = self.events.warning if alarming else self.events.normal
            emit(database, outcome.reason, outcome.message)

    def _again(self, request: Request, outcome: Outcome) -> Result:
        if outcome.backs_off:
            return Result(requeue_after=self._backoff.next_delay(request))
        self._backoff.forget(request)
        if outcome.retry_after is None:
            return Result()
        return Result(requeue_after=jittered(outcome.retry_after, self.runtime.random))


def _paused(database: Database) -> Outcome:
    """As ready as it was: nobody looks."""
    phase = database.status.phase or "Pending"
    message = f"nothing is written while {PAUSED} is true"
    return Outcome(phase=phase, reason="Paused", message=message, retry_after=None)


def _own_endpoint(database: Database, engine: Contents) -> Endpoint | None:
    """Where applications connect to; None where that is not for the object to say."""
    return Endpoint(Names(database.key).host, engine.port) if database.makes_cluster else None


def _failed(database: Database, reason: str, error: ApiError) -> Outcome:
    """What to tell of a request that the API server refuses, or does not carry out."""
    if database.metadata.deletion_timestamp is not None:
        return Outcome(phase="Deleting", reason=reason, message=not_dropped(database, str(error)), retry_after=15.0)
    return Outcome(
        phase="Failed" if is_refusal(error) else "Pending", reason=reason, message=str(error), retry_after=30.0
    )
