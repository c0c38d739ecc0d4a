"""Objects around backups: an object store with its Secret, and a completed backup."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from steersman.api.apply import core, meta
from steersman.client import Client
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta
from steersman_databases.api import Backup, BackupSpec, BackupStatus, BackupStore, BackupStoreSpec
from steersman_databases.api.backups.backup import BackupClusterReference
from steersman_databases.api.backups.backup_common import BackupSettings, StoreReference
from steersman_databases.api.backups.backup_store import (
    S3Location,
    StoreCredentials,
    StoreEncryption,
    StoreSecretReference,
)
from steersman_databases.features.backup.model import TRIGGER_LABEL

STORE = "main"
BACKUP_ID = "20261128-100000F"


def backup_settings(**fields: Any) -> BackupSettings:
    """Return ``spec.backup`` with the store `STORE`."""
    return BackupSettings(store_ref=StoreReference(name=STORE), **fields)


async def create_store(client: Client, namespace: str = "default", **spec: Any) -> None:
    """Create the object store and its credentials."""
    secret = core.Secret(
        metadata=meta.ObjectMeta(name="credentials", namespace=namespace),
        data={"ACCESS_KEY_ID": b"id", "SECRET_ACCESS_KEY": b"key"},
    )
    await client.apply(secret)
    store = BackupStore(
        metadata=ObjectMeta(name=STORE, namespace=namespace),
        spec=BackupStoreSpec(
            s3=S3Location(bucket="backups"),
            credentials=StoreCredentials(secret_ref=StoreSecretReference(name="credentials")),
            encryption=StoreEncryption(mode="Disabled"),
            **spec,
        ),
    )
    await client.create(store)


async def create_backup(
    client: Client, path: str = "default/postgresqlcluster.source/0123abcd", **status: Any
) -> None:
    """Create the completed Backup ``before`` of the deleted cluster ``source``."""
    backup = Backup(
        # The controller of Backup leaves the status of final backups to their deletion.
        metadata=ObjectMeta(
            name="before", namespace="default", labels=FrozenDict[str, str]({TRIGGER_LABEL: "Final"})
        ),
        spec=BackupSpec(cluster_ref=BackupClusterReference(name="source")),
    )
    created = await client.create(backup)
    fields: dict[str, Any] = {
        "phase": "Completed",
        "backup_id": BACKUP_ID,
        "path": path,
        "engine": "postgresql",
        "version": "17",
        "store": StoreReference(name=STORE, namespace="default"),
    }
    await client.apply_status(created, BackupStatus(**(fields | status)))


async def final_backup_of(client: Client, uid: str, name: str = "orders") -> Backup:
    """Read the final backup of a cluster."""
    return await client.get(Backup, ObjectKey("default", f"{name}-final-{uid[:8]}"))


MONTH = timedelta(days=30)
