"""Controller of `Database`: dedicated cluster, SQL objects, status."""

from __future__ import annotations

from msgspec.structs import replace

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
from steersman.meta import Condition
from steersman_databases.api import Database
from steersman_databases.api.group import PAUSED_ANNOTATION, is_paused
from steersman_databases.core.annotation_warnings import AnnotationWarnings
from steersman_databases.core.api_errors import REASONS, ApiErrorTracker, is_namespace_terminating, is_rejection
from steersman_databases.core.backoff import BackOff
from steersman_databases.core.database_naming import DatabaseNames
from steersman_databases.core.outcome import (
    DatabaseOutcome,
    ReconcileBlocked,
    is_changed,
    jittered,
    status_of,
    with_webhooks_condition,
)
from steersman_databases.engines import ServerEndpoint, SqlEngine
from steersman_databases.features.backup.metrics import BackupMetrics
from steersman_databases.features.backup.progress import archiving_events
from steersman_databases.features.backup.stage import ClaimPath
from steersman_databases.features.backup_store.secret_reader import SecretReader
from steersman_databases.features.dump.final import FinalDump
from steersman_databases.features.dump.report import DatabaseReport, not_recovered
from steersman_databases.features.dump.restore import RestoreStage
from steersman_databases.features.dump.stage import DumpStage
from steersman_databases.sql.database.dedicated_cluster import DedicatedCluster
from steersman_databases.sql.database.sql_database import SqlDatabase, deletion_blocked
from steersman_databases.sql.inspector.server_inspector import NoSlotFree, ServerInspector
from steersman_databases.sql.object_marks import ObjectMarks
from steersman_databases.sql.server_resolver import ServerResolver, SqlEngineFactory
from steersman_databases.sql.settings import SqlSettings

FINALIZER = "databases.steersman.dev/data"


class DatabaseReconciler(RequestReconciler[Database]):
    """Reconciles a database and its owner, with a dedicated cluster if declared.

    Args:
        context: from the controller.
        sql_engine_for: returns the SQL engine by its name.
        inspector: shared with the controller of users.
        metrics: of backups.
        claim_path: creates the identity of dumps in the object store.
        settings: settings of this installation.
    """

    def __init__(
        self,
        context: ReconcilerContext,
        sql_engine_for: SqlEngineFactory,
        inspector: ServerInspector,
        metrics: BackupMetrics,
        claim_path: ClaimPath | None = None,
        settings: SqlSettings = SqlSettings(),  # noqa: B008
    ) -> None:
        super().__init__(context)
        secrets = SecretReader(self.client)
        self._dumps = DumpStage(self.client, secrets, claim_path, metrics, self.runtime.clock)
        self._final_dump = FinalDump(self.client, self.runtime.clock)
        self._restore = RestoreStage(self.client, self.events, secrets)
        self._sql_engine_for, self._serves_webhooks = sql_engine_for, settings.serves_webhooks
        self._resolver = ServerResolver(self.client, sql_engine_for, self.runtime.clock, settings.server_networks)
        self._inspector = inspector
        self._marks = ObjectMarks(self.client)
        self._api_errors = ApiErrorTracker(self.runtime.clock)
        self._annotation_warnings = AnnotationWarnings(self.events)
        self._backoff = BackOff()

    async def reconcile(self, request: Request) -> Result:
        database = await self.client.get_or_none(Database, request)
        if database is None:
            self._inspector.forget(Database.api_resource.kind, request)
            self._annotation_warnings.forget(request)
            self._backoff.forget(request)
            self._dumps.forget(request)
            return Result()
        self._annotation_warnings.check_common(database)
        engine = self._sql_engine_for(database.engine)
        if is_paused(database) and database.metadata.deletion_timestamp is None:
            self._inspector.forget(Database.api_resource.kind, request)
            await self._write_status(database, _paused_outcome(database), None, engine)
            return Result()
        report: DatabaseReport | None = None
        try:
            endpoint, outcome = await self._advance(database, engine)
            if outcome is not None and database.metadata.deletion_timestamp is None:
                report = await self._report_data(database, outcome)
        except NoSlotFree as busy:
            return Result(requeue_after=busy.retry_after)
        except ApiError as error:
            if is_namespace_terminating(error):
                return Result()
            if not (reason := self._api_errors.reason(request, error)):
                raise
            outcome = _api_error_outcome(database, reason, error)
            await self._write_status(database, outcome, _own_endpoint(database, engine), engine)
            if not is_rejection(error):
                raise
            return self._requeue(request, outcome)
        if outcome is None:
            return Result()
        if report is not None:
            outcome = report.outcome or outcome
        await self._write_status(database, outcome, endpoint, engine, report)
        return self._requeue(request, outcome, report)

    async def _report_data(self, database: Database, outcome: DatabaseOutcome) -> DatabaseReport:
        """Restore and dump the data of a database that exists."""
        recovered = await self._restore.ensure(database) if outcome.phase == "Ready" else None
        waiting = None if recovered is None or recovered[0] else not_recovered(recovered)
        serves = outcome.phase == "Ready" and waiting is None
        return DatabaseReport(recovered, await self._dumps.ensure(database, serves=serves), waiting)

    async def update_status(self, request: Request, outcome: Ending) -> None:
        """Record the result. The next reconcile reports it."""
        self._api_errors.record(request, outcome.error)

    async def _advance(
        self, database: Database, engine: SqlEngine
    ) -> tuple[ServerEndpoint | None, DatabaseOutcome | None]:
        """Reconcile once, and return the endpoint for applications."""
        cluster = DedicatedCluster(self.client, self.events, database) if database.makes_cluster else None
        sql_database = SqlDatabase(
            self.client, self.events, self._resolver, self._inspector, self._marks, database, cluster
        )
        try:
            if database.metadata.deletion_timestamp is not None:
                if FINALIZER in database.metadata.finalizers:
                    await sql_database.delete(retained_because=await self._final_dump.ensure(database))
                    await remove_finalizer(self.client, database, FINALIZER)
                return None, None
            await add_finalizer(self.client, database, FINALIZER)
            if cluster is not None:
                await cluster.ensure(engine)
            return await sql_database.ensure()
        except ReconcileBlocked as blocked:
            return blocked.endpoint or _own_endpoint(database, engine), blocked.outcome

    async def _write_status(
        self,
        database: Database,
        outcome: DatabaseOutcome,
        endpoint: ServerEndpoint | None,
        engine: SqlEngine,
        report: DatabaseReport | None = None,
    ) -> None:
        now = self.runtime.clock.now()
        status = status_of(database, outcome, endpoint, engine.uri_scheme, now)
        if report is not None:
            status = report.applied_to(status, database.metadata.generation, now)
        conditions = with_webhooks_condition(
            status.conditions, Condition, database, now, served=self._serves_webhooks
        )
        storage = None
        if database.makes_cluster:
            storage = await DedicatedCluster(self.client, self.events, database).storage_status()
        status = replace(status, conditions=conditions, storage=storage)
        if status == database.status:
            return
        # The cache may lack the last status, and an Event must not repeat.
        previous = (await self.client.live.get(Database, database.key)).status
        await self.client.apply_status(database, status)
        if is_changed(previous, status):
            is_warning = outcome.phase in ("Failed", "Pending") or outcome.reason in REASONS
            emit_event = self.events.warning if is_warning else self.events.normal
            emit_event(database, outcome.reason, outcome.message)
        for reason, message in archiving_events(previous.conditions, status.conditions):
            self.events.warning(database, reason, message)

    def _requeue(self, request: Request, outcome: DatabaseOutcome, report: DatabaseReport | None = None) -> Result:
        if outcome.backoff:
            return Result(requeue_after=self._backoff.next_delay(request))
        self._backoff.forget(request)
        retry_after = outcome.retry_after
        if report is not None and (dumps := report.dumps.retry_after) is not None:
            retry_after = dumps if retry_after is None else min(retry_after, dumps)
        if retry_after is None:
            return Result()
        return Result(requeue_after=jittered(retry_after, self.runtime.random))


def _paused_outcome(database: Database) -> DatabaseOutcome:
    """Return the previous phase, because nothing is inspected while paused."""
    phase = database.status.phase or "Pending"
    message = f"the operator writes nothing while {PAUSED_ANNOTATION} is true"
    return DatabaseOutcome(phase=phase, reason="Paused", message=message, retry_after=None)


def _own_endpoint(database: Database, engine: SqlEngine) -> ServerEndpoint | None:
    """Return the endpoint of a dedicated cluster, or None."""
    return ServerEndpoint(DatabaseNames(database.key).host, engine.port) if database.makes_cluster else None


def _api_error_outcome(database: Database, reason: str, error: ApiError) -> DatabaseOutcome:
    """Return the outcome of a refused or failed API request."""
    if database.metadata.deletion_timestamp is not None:
        return DatabaseOutcome(
            phase="Deleting", reason=reason, message=deletion_blocked(database, str(error)), retry_after=15.0
        )
    return DatabaseOutcome(
        phase="Failed" if is_rejection(error) else "Pending", reason=reason, message=str(error), retry_after=30.0
    )
