"""Archiving and backups as a part of a cluster's reconcile.

Everything is derived from the store's catalog and the ``Backup`` objects: the operator may be away for a day or
installed again. Nothing here stops or restarts an instance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Secret
from steersman.controller import Builder
from steersman.errors import AlreadyExists
from steersman.meta import Object, find_condition
from steersman_databases.api import Backup, BackupStore, Cluster
from steersman_databases.api.backups.backup_common import BackupSettings, ClusterBackupStatus
from steersman_databases.cluster.declared import engine_of
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.context import ClusterContext
from steersman_databases.features.backup import declared_backups, model
from steersman_databases.features.backup.archive_objects import ArchiveLocation, ArchiveObjects
from steersman_databases.features.backup.catalog import Catalog, read_catalog
from steersman_databases.features.backup.metrics import BackupMetrics
from steersman_databases.features.backup.queries import BACKUP_INDEX, cluster_index, store_of
from steersman_databases.features.backup.schedules import InvalidSchedule, due_backups, next_time
from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem
from steersman_databases.features.backup_store.layout import ArchiveIdentity
from steersman_databases.features.backup_store.model import find_store, load_access
from steersman_databases.features.backup_store.secret_reader import SecretReader
from steersman_databases.features.verification.model import figures_of
from steersman_databases.features.verification.stage import ensure_verification

T = TypeVar("T", bound=Object)

CONDITIONS = ("ContinuousArchiving", "BackedUp", "BackupsVerified")
_DISCOVERED_PER_PASS = 20
_PLACE = ("service", "endpoint", "account", "bucket", "prefix", "path", "cluster_uid", "passphrase")
"""Fields of the store's document that determine path and key."""
_GAPS = frozenset({"SegmentsDropped", "WALMissing", "BinaryLogMissing"})
"""States of the archive after which a new recovery window begins.

It begins with a full backup.
"""


@dataclass(frozen=True, slots=True)
class _Observed:
    """Observed state of a cluster's backups."""

    location: ArchiveLocation
    catalog: Catalog | None
    backups: Sequence[Backup]
    completed: Sequence[model.FinishedBackup]


ClaimPath = Callable[[StoreAccess, str, ArchiveIdentity], Awaitable[None]]
"""Creates ``steersman.json`` in the store unless it names the same cluster. Raises `StoreProblem`."""


@dataclass(frozen=True, slots=True)
class BackupServices:
    """Components that the stages of all clusters of a controller share."""

    secrets: SecretReader
    claim_path: ClaimPath | None
    metrics: BackupMetrics


class BackupStage:
    """Declares the archive of one cluster, creates due backups and reports both.

    Args:
        pvcs: of the data that the cluster uses.
    """

    def __init__(
        self,
        context: ClusterContext,
        cluster: Cluster,
        pvcs: Sequence[PersistentVolumeClaim],
        services: BackupServices,
    ) -> None:
        self._context = context
        self._client = context.client
        self._cluster = cluster
        self._objects = ArchiveObjects(context, pvcs)
        self._services = services

    async def ensure(self, state: ClusterState, conditions: ConditionSet) -> ClusterBackupStatus | None:
        """One pass. The status; None without ``spec.backup``."""
        settings = self._cluster.spec.backup
        if settings is None:
            for condition in CONDITIONS:
                conditions.remove(condition)
            with self._context.deferred:
                await self._objects.remove()
            self._services.metrics.forget(self._context.declared.key)
            return None
        location = await self._objects.ensure_location()
        config_map = await self._objects.ensure_catalog()
        observed = await self._observe(location, read_catalog(config_map.data))
        archiving = await self._ensure_store(settings, location) or model.archiving_condition(observed.catalog)
        conditions.set(CONDITIONS[0], *archiving)
        now = self._context.clock.now()
        try:
            backed_up = model.backed_up_condition(observed.completed, observed.backups, settings.schedules, now)
            next_backup = await self._create_due(settings, state, observed, now)
        except InvalidSchedule as error:
            backed_up, next_backup = (False, "InvalidSchedule", str(error)), None
        conditions.set(CONDITIONS[1], *backed_up)
        await self._mirror(observed)
        status = model.backup_status(observed.catalog, observed.completed, location.path, next_backup)
        return await self._with_verification(observed, status, conditions)

    async def _with_verification(
        self, observed: _Observed, status: ClusterBackupStatus, conditions: ConditionSet
    ) -> ClusterBackupStatus:
        """Request due verifications. The status with the last one."""
        report = await ensure_verification(
            self._context, self._cluster, observed.backups, observed.location.path, conditions
        )
        status = msgspec.structs.replace(status, last_verification=report.last, next_verification=report.next)
        figures = figures_of(report.success, observed.backups)
        self._services.metrics.update(self._context.declared.key, observed.completed, status)
        self._services.metrics.update_verification(self._context.declared.key, report.success, figures)
        return status

    async def _ensure_store(self, settings: BackupSettings, location: ArchiveLocation) -> model.Condition | None:
        """The Secret of the store. The condition where the store cannot be used; then the Secret stays as it is."""
        declared = self._context.declared
        engine = engine_of(type(self._cluster))
        try:
            store = await find_store(self._client, settings.store_ref, declared.key.namespace)
            access = await load_access(self._services.secrets, store)
            document = access.pod_document(
                engine=engine, path=location.path, cluster_uid=location.uid, archive=settings.archive
            )
            if not same_place(await self._objects.present_store(), document):
                # The first use of this path. An unreachable store would delay the whole reconcile.
                if (problem := not_ready(store)) is not None:
                    return problem
                fingerprint = access.key_fingerprint
                identity = ArchiveIdentity(engine=engine, cluster_uid=location.uid, key_fingerprint=fingerprint)
                if self._services.claim_path is not None and not access.needs_identity:
                    await self._services.claim_path(access, location.path, identity)
        except StoreProblem as problem:
            return False, problem.reason, str(problem)
        await self._objects.ensure_store(document)
        return None

    async def _observe(self, location: ArchiveLocation, catalog: Catalog | None) -> _Observed:
        declared = self._context.declared
        backups = await self._client.list(Backup, index=(BACKUP_INDEX, cluster_index(declared.kind, declared.key)))
        store = store_of(self._cluster)
        # Backups in a previous store are not in the catalog of this one.
        backups = [b for b in backups if b.status.store is None or b.status.store == store]
        completed = model.completed_backups(catalog, backups, location.path)
        return _Observed(location, catalog, backups, completed)

    async def _create_due(
        self, settings: BackupSettings, state: ClusterState, observed: _Observed, now: datetime
    ) -> datetime | None:
        """Create the backups that are due. The time of the next one."""
        announced = None if self._cluster.status.backup is None else self._cluster.status.backup.next_backup
        last = model.last_scheduled(observed.backups)
        due = due_backups(settings.schedules, last, announced, now)
        primary = state.primary
        if primary is None or not primary.pod_ready:
            # The time that was announced stays: after the outage one backup makes up for it.
            return announced if due else next_time(settings.schedules, now)
        created = [await self._create(declared_backups.scheduled_backup(self._cluster, each)) for each in due]
        archive = None if observed.catalog is None else observed.catalog.archive
        if archive is not None and archive.state == model.ARCHIVING and not observed.completed:
            await self._create(declared_backups.initial_backup(self._cluster))
        elif archive is not None and archive.state in _GAPS and archive.since is not None:
            await self._create(declared_backups.backup_after_gap(self._cluster, archive.since))
        await self._create_after_upgrade(observed)
        return next_time(settings.schedules, now) if all(created) else announced

    async def _create_after_upgrade(self, observed: _Observed) -> None:
        declared, archive = self._context.declared, None if observed.catalog is None else observed.catalog.archive
        if declared.engine != "postgresql" or archive is None or archive.state != model.ARCHIVING:
            return
        if model.lacks_version(observed.catalog, declared.version):
            await self._create(declared_backups.backup_after_upgrade(self._cluster, declared.version))

    async def _create(self, backup: Backup) -> bool:
        """Create a ``Backup`` unless it exists. False if the API server rejects it."""
        if await self._client.get_or_none(Backup, backup.key) is not None:
            return True
        with self._context.deferred:
            # The cache may be behind.
            with suppress(AlreadyExists):
                await self._client.create(backup)
            return True
        return False

    async def _mirror(self, observed: _Observed) -> None:
        """Create objects for discovered backups, and delete those of expired ones."""
        path = observed.location.path
        found = model.undiscovered(observed.catalog, observed.backups, path)
        for each in found[:_DISCOVERED_PER_PASS]:
            await self._create(declared_backups.discovered_backup(self._cluster, each))
        gone = [b for b in observed.backups if b.status.path == path and model.is_expired(b, observed.catalog)]
        for backup in (*gone, *model.superseded_failures(observed.backups)):
            if backup.metadata.deletion_timestamp is None:
                await self._context.delete(Backup, backup)


def same_place(present: Mapping[str, object], desired: Mapping[str, object]) -> bool:
    """Return True if the pods already archive to this path.

    Store and key must be the same.
    """
    return all(present.get(field) == desired[field] for field in _PLACE)


def not_ready(store: BackupStore) -> model.Condition | None:
    """The condition for an unusable store, or None."""
    ready = find_condition(store.status.conditions, "Ready")
    if ready is None:
        return None, "Waiting", f"BackupStore {store.metadata.name} has not been checked yet"
    if ready.status == "True":
        return None
    return False, ready.reason, f"BackupStore {store.metadata.name}: {ready.message}"


def permit(builder: Builder[T]) -> Builder[T]:
    """Declares what the stage does at the API server."""
    return (
        builder.needs(Backup, "get", "list", "watch", "create", "patch", "delete")
        .needs(BackupStore, "get", "list", "watch")
        .needs(PersistentVolumeClaim, "patch")
        .needs(Secret, "get", "create", "patch", "delete")
        .needs(ConfigMap, "get", "create", "patch", "delete")
    )
