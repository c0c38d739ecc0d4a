"""Final dump of a ``Database`` before its database is dropped."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

from steersman.cache import CachedClient
from steersman.errors import AlreadyExists, NotFound
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Backup, Database
from steersman_databases.api.backups.backup_common import SKIP_FINAL_BACKUP_ANNOTATION, is_final_backup_skipped
from steersman_databases.api.group import is_deletion_forced
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.outcome import ReconcileBlocked, with_advice
from steersman_databases.features.backup.declared_backups import final_dump

IF_POSSIBLE_TIMEOUT = timedelta(minutes=10)
"""Time from the deletion until ``finalBackup: IfPossible`` gives up."""
_RETRY_AFTER = timedelta(minutes=5)
"""Time after which a failed dump is repeated."""
_WAITING_SECONDS = 10.0


class FinalDump:
    """Takes final dumps. One for a controller."""

    def __init__(self, client: CachedClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def ensure(self, database: Database) -> str:
        """Wait for the final dump of a database that is being deleted.

        Returns:
            Why the database must stay on its server. Empty if it may be dropped.

        Raises:
            ReconcileBlocked: the dump is not complete.
        """
        policy = _policy(database)
        if policy == "Disabled":
            return ""
        if is_final_backup_skipped(database):
            return f"{SKIP_FINAL_BACKUP_ANNOTATION} is true"
        backup = final_dump(database)
        present = await get_cached_or_live(self._client, Backup, backup.key)
        if present is None:
            with suppress(AlreadyExists):
                await self._client.create(backup)
            raise _waits(backup.key, "is due")
        if present.status.phase == "Completed":
            return ""
        since = database.metadata.deletion_timestamp
        if policy == "IfPossible" and since is not None and self._clock.now() - since > IF_POSSIBLE_TIMEOUT:
            return f"the final dump {backup.key.name} was not possible within 10 minutes"
        if present.status.phase != "Failed":
            raise _waits(backup.key, present.status.message or "is due")
        stopped = present.status.stop_time or present.metadata.creation_timestamp
        if stopped is not None and self._clock.now() - stopped > _RETRY_AFTER:
            with suppress(NotFound):
                await self._client.delete(Backup, present.key, uid=present.metadata.uid)
        message = f"the final dump failed, Backup {backup.key.name}: {present.status.message or ''}"
        text = with_advice(message.rstrip("."), "FinalBackupFailed")
        raise ReconcileBlocked("Deleting", "FinalBackupFailed", text, retry_after=_WAITING_SECONDS)


def _policy(database: Database) -> str:
    """Return the policy of the final dump. ``Disabled`` without data to dump."""
    settings = database.spec.backup
    dropped = database.spec.deletion_policy == "Delete" and not is_deletion_forced(database)
    was_provisioned = bool(database.status.connection_string)
    if settings is None or database.spec.server_ref is None or not dropped or not was_provisioned:
        return "Disabled"
    return settings.final_backup_policy(database.spec.deletion_policy)


def _waits(backup: ObjectKey, message: str) -> ReconcileBlocked:
    text = f"waiting for the final dump, Backup {backup.name}: {message}"
    return ReconcileBlocked("Deleting", "Deleting", text, retry_after=_WAITING_SECONDS)
