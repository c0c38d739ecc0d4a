"""Object stores for ``kubectl steersman store``.

The commands check access, list backups, and export the encryption key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from steersman.api.core_v1 import Secret
from steersman.client import Client, MergePatch
from steersman.errors import ApiError, NotFound
from steersman.meta import FrozenStruct, ObjectKey, ObjectMeta, find_condition, to_builtins
from steersman_databases.api import BackupStore
from steersman_databases.api.backups.backup_store import KEY_EXPORTED_ANNOTATION
from steersman_databases.api.secret_references import referenced_secrets
from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem
from steersman_databases.features.backup_store.layout import object_path
from steersman_databases.features.backup_store.listing import StoreListing
from steersman_databases.features.backup_store.model import resolve_access
from steersman_databases.features.backup_store.probe_process import ProbeProcess
from steersman_databases.features.backup_store.report import REACHABLE
from steersman_databases.kubectl.command import OperationRejected, usage_error


class CheckReport(FrozenStruct):
    """Result of a check.

    Attributes:
        reason: ``Reachable``, or the reason of the problem.
        locked_days: days for which new objects are locked; None if unknown.
        operator: what the operator reports in the condition Ready.
    """

    store: str
    reason: str
    message: str
    operator: str
    clock_skew_seconds: int | None = None
    locked_days: int | None = None

    @property
    def ok(self) -> bool:
        """True if the store can be used."""
        return self.reason == REACHABLE


class KeyReport(FrozenStruct):
    """An exported encryption key."""

    store: str
    file: str
    secret: str
    fingerprint: str


async def check(client: Client, key: ObjectKey, probe: ProbeProcess) -> CheckReport:
    """Verify connection, credentials, bucket and rights from this machine.

    Raises:
        NotFound: the ``BackupStore`` does not exist.
    """
    store = await client.get(BackupStore, key)
    ready = find_condition(store.status.conditions, "Ready")
    operator = "has not checked it yet" if ready is None else f"{ready.reason} {ready.message}".strip()
    try:
        report = await probe.check(await _access(client, store))
    except StoreProblem as problem:
        return CheckReport(store=key.name, reason=problem.reason, message=str(problem), operator=operator)
    return CheckReport(
        store=key.name,
        reason=report.reason,
        message=report.message,
        operator=operator,
        clock_skew_seconds=report.clock_skew_seconds,
        locked_days=report.locked_days,
    )


async def list_content(client: Client, key: ObjectKey, path: str, probe: ProbeProcess) -> StoreListing:
    """Return the archives in a store, or the backups of an archive.

    Raises:
        ConfigurationError: the path is malformed.
        OperationRejected: the store cannot be used from this machine.
    """
    path = path.strip("/")
    try:
        path = path and object_path(path)
    except ValueError as error:
        raise usage_error(str(error)) from None
    store = await client.get(BackupStore, key)
    try:
        listing = await probe.list(await _access(client, store), path)
    except StoreProblem as problem:
        raise OperationRejected(f"BackupStore {key.name}: {problem}") from None
    if listing.reason != REACHABLE:
        raise OperationRejected(f"BackupStore {key.name}: {listing.message}")
    return listing


async def export_key(client: Client, key: ObjectKey, file: Path) -> KeyReport:
    """Write the encryption key's Secret to a new file. Mark it exported.

    Raises:
        OperationRejected: the store has no encryption key, its Secret is not usable, or it cannot be marked. In the
            last case the file is complete.
        ConfigurationError: the file exists, or cannot be written.
    """
    store = await client.get(BackupStore, key)
    reference = store.key_secret
    if reference is None:
        raise OperationRejected(f"BackupStore {key.name} has no encryption key: spec.encryption.mode is Disabled")
    try:
        fingerprint = (await _access(client, store)).key_fingerprint
    except StoreProblem as problem:
        raise OperationRejected(f"BackupStore {key.name}: {problem}") from None
    secret = await client.get(Secret, ObjectKey(key.namespace, reference.name))
    _write(file, _manifest(secret))
    if store.spec.encryption.secret_ref is None:
        patch = MergePatch({"metadata": {"annotations": {KEY_EXPORTED_ANNOTATION: fingerprint}}})
        try:
            await client.patch(BackupStore, key, patch)
        except ApiError as error:
            raise OperationRejected(
                f"the key is in {file}, but BackupStore {key.name} cannot be marked as exported: {error}. Set its "
                f"annotation {KEY_EXPORTED_ANNOTATION}={fingerprint}"
            ) from None
    return KeyReport(store=key.name, file=str(file), secret=reference.name, fingerprint=fingerprint)


def _manifest(secret: Secret) -> dict[str, Any]:
    """Return a Secret as it is applied to another Kubernetes cluster. Its labels name the store."""
    own = secret.metadata
    exported = Secret(
        metadata=ObjectMeta(name=own.name, namespace=own.namespace, labels=own.labels),
        data=secret.data,
        immutable=secret.immutable,
        type=secret.type,
    )
    return {"apiVersion": "v1", "kind": "Secret", **to_builtins(exported)}


def _write(file: Path, manifest: dict[str, Any]) -> None:
    try:
        # Other users must not read it, and no earlier key is overwritten.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise usage_error(f"--file {file}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w") as stream:
            yaml.safe_dump(manifest, stream, sort_keys=False)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise usage_error(f"--file {file}: {error.strerror}") from None


async def _access(client: Client, store: BackupStore) -> StoreAccess:
    """Read the Secrets of a store. Raises StoreProblem."""
    names = {each.key.name for each in referenced_secrets(store)}
    if store.key_secret is not None:
        names.add(store.key_secret.name)
    found: dict[str, Secret] = {}
    for name in sorted(names):
        try:
            found[name] = await client.get(Secret, ObjectKey(store.metadata.namespace, name))
        except NotFound:
            continue
    return resolve_access(store, found)
