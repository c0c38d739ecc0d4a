"""Dumps of a ``Database`` on a server.

The stage ensures the object store, creates due ``Backup`` objects and reports them.
Everything is derived from the ``Backup`` objects. Nothing here changes the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from steersman.api.core_v1 import Secret, ServiceAccount
from steersman.cache import CachedClient
from steersman.errors import AlreadyExists, ApiError
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Backup, Database
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.api.database import DumpStatus
from steersman_databases.core.api_errors import is_rejection
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.database_naming import DatabaseNames
from steersman_databases.engines.workload_identity import identity_of_document
from steersman_databases.features.backup import declared_backups, model
from steersman_databases.features.backup.metrics import BackupMetrics
from steersman_databases.features.backup.queries import BACKUP_INDEX, cluster_index, controls, store_of
from steersman_databases.features.backup.schedules import InvalidSchedule, due_backups, next_time
from steersman_databases.features.backup.stage import ClaimPath, not_ready, same_place
from steersman_databases.features.backup_store.access import StoreProblem
from steersman_databases.features.backup_store.layout import ArchiveIdentity, archive_path
from steersman_databases.features.backup_store.model import find_store, load_access
from steersman_databases.features.backup_store.secret_reader import SecretReader
from steersman_databases.features.dump.connection import NotConnectable, connection_of
from steersman_databases.features.dump.report import DumpReport
from steersman_databases.features.dump.specs import STORE_KEY, dump_labels, store_account, store_secret

_RETRY_SECONDS = 30.0
"""Interval of checks while dumps are not possible."""
_RESYNC_SECONDS = 300.0
_SHORTEST_SECONDS = 1.0


class DumpStage:
    """Declares the dumps of databases. One for a controller.

    Args:
        secrets: reads the Secrets of object stores.
        claim_path: creates the identity of a path in the object store.
    """

    def __init__(
        self,
        client: CachedClient,
        secrets: SecretReader,
        claim_path: ClaimPath | None,
        metrics: BackupMetrics,
        clock: Clock,
    ) -> None:
        self._client = client
        self._secrets = secrets
        self._claim_path = claim_path
        self._metrics = metrics
        self._clock = clock

    def forget(self, database: ObjectKey) -> None:
        """Remove the metrics of a database."""
        self._metrics.forget(_metrics_key(database))

    async def ensure(self, database: Database, *, serves: bool) -> DumpReport:
        """Create due dumps, and return the report.

        Args:
            serves: the database can be dumped now.
        """
        settings = database.spec.backup
        if settings is None or database.spec.server_ref is None:
            self.forget(database.key)
            return DumpReport()
        path = archive_path(Database.api_resource.kind, database.key, database.metadata.uid)
        backups = await self._backups(database, path)
        completed, now = model.completed_backups(None, backups, path), self._clock.now()
        problem = await self._ensure_store(database, settings, path)
        previous = database.status.backup or DumpStatus()
        next_dump, backed_up = previous.next_backup, problem
        try:
            backed_up = problem or model.backed_up_condition(completed, backups, settings.schedules, now)
            if problem is None and serves:
                next_dump = await self._create_due(database, settings, backups, now, has_dump=bool(completed))
        except InvalidSchedule as error:
            backed_up, next_dump = (False, "InvalidSchedule", str(error)), None
        except ApiError as error:
            if not is_rejection(error):
                raise
            backed_up = (False, "RequestFailed", str(error))
        await self._remove_failed(backups)
        found = model.backup_status(None, completed, path, next_dump)
        self._metrics.update(_metrics_key(database.key), completed, found)
        # A dump starts once there is a path.
        ready_path = path if problem is None or previous.path == path else None
        status = DumpStatus(
            last_backup=found.last_backup, next_backup=next_dump, stored_bytes=found.stored_bytes, path=ready_path
        )
        waits = problem is not None or not serves
        retry_after = _RETRY_SECONDS if waits else _seconds_until(next_dump, now)
        return DumpReport(backed_up=backed_up, status=status, retry_after=retry_after)

    async def _backups(self, database: Database, path: str) -> Sequence[Backup]:
        """``Backup`` objects in the present store and path, or without a Job."""
        value = cluster_index(Database.api_resource.kind, database.key)
        found = await self._client.list(Backup, index=(BACKUP_INDEX, value))
        store = store_of(database)
        return [b for b in found if b.status.store in (None, store) and b.status.path in (None, path)]

    async def _ensure_store(self, database: Database, settings: BackupSettings, path: str) -> model.Condition | None:
        """Ensure the Secret of the store. The condition if dumps cannot be stored; then the Secret stays as it is."""
        key, uid, engine = DatabaseNames(database.key).dump_store, database.metadata.uid, database.engine
        present = await get_cached_or_live(self._client, Secret, key)
        if present is not None and not controls(database, present):
            return False, "NameConflict", f"Secret {key.name} exists and does not belong to this Database"
        try:
            connection_of(database)
            store = await find_store(self._client, settings.store_ref, key.namespace)
            access = await load_access(self._secrets, store)
            document = access.pod_document(
                engine=engine, path=path, cluster_uid=uid, archive=settings.archive, dumps=True
            )
            if not same_place(_document(present), document):
                if (problem := not_ready(store)) is not None:
                    return problem
                identity = ArchiveIdentity(engine=engine, cluster_uid=uid, key_fingerprint=access.key_fingerprint)
                if self._claim_path is not None and not access.needs_identity:
                    await self._claim_path(access, path, identity)
        except StoreProblem as problem:
            return False, problem.reason, str(problem)
        except NotConnectable as error:
            return False, "ReferenceNotPermitted", str(error)
        return await self._apply_store(database, document)

    async def _apply_store(self, database: Database, document: Mapping[str, object]) -> model.Condition | None:
        """Apply the Secret of the store.

        A workload identity also needs the ServiceAccount of the Jobs.
        """
        key, labels = DatabaseNames(database.key).dump_store, dump_labels(database)
        if (identity := identity_of_document(document)) is not None:
            account = await get_cached_or_live(self._client, ServiceAccount, key)
            if account is not None and not controls(database, account):
                return False, "NameConflict", f"ServiceAccount {key.name} exists and does not belong to this Database"
            await self._client.apply(store_account(key, labels, identity), owner=database)
        await self._client.apply(store_secret(key, labels, document), owner=database)
        return None

    async def _create_due(
        self,
        database: Database,
        settings: BackupSettings,
        backups: Sequence[Backup],
        now: datetime,
        *,
        has_dump: bool,
    ) -> datetime | None:
        """Create due dumps. The time of the next one."""
        announced = None if database.status.backup is None else database.status.backup.next_backup
        for due in due_backups(settings.schedules, model.last_scheduled(backups), announced, now):
            await self._create(declared_backups.scheduled_backup(database, due))
        if not has_dump:
            await self._create(declared_backups.initial_backup(database))
        return next_time(settings.schedules, now)

    async def _create(self, backup: Backup) -> None:
        if await self._client.get_or_none(Backup, backup.key) is None:
            # The cache may be behind.
            with suppress(AlreadyExists):
                await self._client.create(backup)

    async def _remove_failed(self, backups: Sequence[Backup]) -> None:
        for backup in model.superseded_failures(backups):
            if backup.metadata.deletion_timestamp is None:
                await self._client.delete(Backup, backup.key, uid=backup.metadata.uid)


def _seconds_until(next_dump: datetime | None, now: datetime) -> float:
    """Return the seconds until the next dump or a resync."""
    if next_dump is None:
        return _RESYNC_SECONDS
    return min(max((next_dump - now).total_seconds(), _SHORTEST_SECONDS), _RESYNC_SECONDS)


def _metrics_key(database: ObjectKey) -> ObjectKey:
    # A cluster may have the name of the Database. No name of a cluster has a slash.
    return ObjectKey(database.namespace, f"database/{database.name}")


def _document(secret: Secret | None) -> Mapping[str, object]:
    if secret is None:
        return {}
    try:
        return msgspec.json.decode(secret.data.get(STORE_KEY, b""), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return {}
