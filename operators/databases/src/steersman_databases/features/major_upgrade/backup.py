"""The backup before a major upgrade. An upgrade of a cluster with ``spec.backup`` does not start without it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from steersman.errors import AlreadyExists
from steersman.meta import ObjectKey
from steersman_databases.api import Backup, Cluster
from steersman_databases.cluster.status.conditions import ConditionUpdate
from steersman_databases.core.cached_reads import get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.features.backup import declared_backups, model
from steersman_databases.features.backup.queries import BACKUP_INDEX, cluster_index, store_of

MAX_AGE = timedelta(days=1)
"""An older backup was taken for an earlier attempt. The archive has what was committed since a newer one."""

Reason = Literal["WaitingForBackup", "BackupFailed"]


@dataclass(frozen=True, slots=True)
class Blocker:
    """Reason why an upgrade does not start yet. Without a name there is no backup yet."""

    reason: Reason
    message: str
    backup: str = ""


@dataclass(frozen=True, slots=True)
class BackupBeforeUpgrade:
    """Takes the backup of one cluster."""

    context: ClusterContext
    cluster: Cluster

    async def ensure(self, version: str, archiving: ConditionUpdate | None) -> Blocker | None:
        """Create the backup before an upgrade to a version. None once it is complete, or is not declared.

        Args:
            archiving: the condition ``ContinuousArchiving``. None if it could not be evaluated.
        """
        if self.cluster.spec.backup is None:
            return None
        declared, now = self.context.declared, self.context.clock.now()
        index = (BACKUP_INDEX, cluster_index(declared.kind, declared.key))
        store = store_of(self.cluster)
        found = [b for b in await self.context.client.list(Backup, index=index) if b.status.store in (None, store)]
        blocker = find_blocker(found, declared.uid, version, now)
        if blocker is not None and not blocker.backup:
            return await self._create(declared_backups.backup_before_upgrade(self.cluster, version, now)) or blocker
        return blocker or archiving_blocker(archiving)

    async def _create(self, backup: Backup) -> Blocker | None:
        """Create the backup. Return the blocker if a foreign object has its name."""
        # A rejection must not delay the instances.
        with self.context.deferred:
            try:
                await self.context.client.create(backup)
            except AlreadyExists:
                # The cache may be behind.
                present = await get_live(self.context.client, Backup, backup.key)
                if present is not None and not self._is_same(present, backup):
                    return Blocker("BackupFailed", _foreign_message(backup.key), backup.metadata.name)
        return None

    def _is_same(self, present: Backup, backup: Backup) -> bool:
        labels = (model.TRIGGER_LABEL, model.CLUSTER_UID_LABEL, model.UPGRADE_TO_LABEL)
        same = all(present.metadata.labels.get(each) == backup.metadata.labels.get(each) for each in labels)
        return same and present.status.store in (None, store_of(self.cluster))


def _foreign_message(key: ObjectKey) -> str:
    return f"Backup {key.name} has the name of the backup before the upgrade, but is a foreign object"


def archiving_blocker(archiving: ConditionUpdate | None) -> Blocker | None:
    """Return the reason why a completed backup does not suffice.

    The archive must have all later commits.
    """
    if archiving is not None and archiving.holds:
        return None
    detail = "its state is unknown" if archiving is None else archiving.message
    return Blocker("WaitingForBackup", f"waiting for ContinuousArchiving to become True: {detail}")


def find_blocker(backups: Iterable[Backup], cluster_uid: str, version: str, now: datetime) -> Blocker | None:
    """Return the reason why an upgrade does not start yet. None if its backup is complete.

    Args:
        backups: of the cluster's name, also those of a deleted cluster.
    """
    own = [
        backup
        for backup in backups
        if model.trigger_of(backup) == "BeforeUpgrade"
        and backup.metadata.labels.get(model.CLUSTER_UID_LABEL) == cluster_uid
        and backup.metadata.labels.get(model.UPGRADE_TO_LABEL) == version
        and backup.metadata.deletion_timestamp is None
    ]
    newest = min(own, key=lambda backup: model.age_of(backup, now), default=None)
    if newest is None or (newest.status.phase == "Completed" and _is_outdated(newest, now)):
        return Blocker("WaitingForBackup", "a backup is taken before the upgrade")
    name, detail = newest.metadata.name, (newest.status.message or "").rstrip(".")
    if newest.status.phase == "Failed":
        return Blocker("BackupFailed", f"Backup {name} before the upgrade failed: {detail}", name)
    if newest.status.phase == "Completed":
        return None
    return Blocker("WaitingForBackup", f"waiting for Backup {name}{f': {detail}' if detail else ''}", name)


def _is_outdated(backup: Backup, now: datetime) -> bool:
    return backup.status.stop_time is None or now - backup.status.stop_time > MAX_AGE
