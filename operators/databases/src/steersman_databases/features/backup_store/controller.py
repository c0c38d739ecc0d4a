"""Controller of ``BackupStore``: encryption key, probe of the object store, status."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime

from msgspec.structs import replace

from steersman.api.apply import core, meta
from steersman.api.core_v1 import Secret
from steersman.controller import (
    Reconciler,
    ReconcilerContext,
    Result,
    annotations_changed,
    any_of,
    generation_changed,
    referenced_by,
)
from steersman.errors import AlreadyExists
from steersman.manager import Manager
from steersman.meta import Condition, ObjectKey, find_condition, metadata_only, set_condition
from steersman_databases.api import BackupStore
from steersman_databases.api.backups.backup_store import KEY_EXPORTED_ANNOTATION, BackupStoreStatus
from steersman_databases.api.group import is_paused
from steersman_databases.api.kstatus import READY, with_kstatus
from steersman_databases.api.secret_references import referenced_secrets
from steersman_databases.core.cached_reads import get_live
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.core.outcome import (
    jittered,
    truncated,
    with_webhooks_condition,
)
from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem
from steersman_databases.features.backup_store.model import STORE_LABEL, load_access
from steersman_databases.features.backup_store.probe_process import StoreProbe
from steersman_databases.features.backup_store.report import ProbeReport
from steersman_databases.features.backup_store.secret_reader import SecretReader

KEY_EXPORTED = "EncryptionKeyExported"
OBJECT_LOCK = "ObjectLock"

PROBE_INTERVAL_SECONDS = 300.0
RETRY_SECONDS = 60.0
_KEY_BYTES = 32
# The header Date of a response has whole seconds, and the response takes time.
_REPORTED_SKEW_SECONDS = 5
_MAX_CONCURRENT_RECONCILES = 8


def setup_backup_stores(manager: Manager, probe: StoreProbe) -> None:
    """Add the controller of ``BackupStore`` to ``manager``.

    Args:
        probe: verifies object stores.
    """
    (
        manager.controller(BackupStore)
        .with_predicate(any_of(generation_changed, annotations_changed))
        .watches(metadata_only(Secret), referenced_by(BackupStore, secrets_of))
        .needs(Secret, "get", "list", "watch", "create")
        .max_concurrent_reconciles(_MAX_CONCURRENT_RECONCILES)
        .max_retry_delay(RETRY_SECONDS)
        .complete(lambda context: BackupStoreReconciler(context, probe, manager.options.serve_webhooks))
    )


def secrets_of(store: BackupStore) -> list[ObjectKey]:
    """Return the Secrets of a store, a generated encryption key included."""
    keys = [each.key for each in referenced_secrets(store)]
    if (key_secret := store.key_secret) is not None:
        keys.append(ObjectKey(store.metadata.namespace, key_secret.name))
    return list(dict.fromkeys(keys))


class BackupStoreReconciler(Reconciler[BackupStore]):
    """Verifies an object store every 5 minutes and after each change.

    Args:
        context: context of the controller.
        probe: verifies object stores.
        serves_webhooks: True if this operator serves its admission webhooks.
    """

    def __init__(self, context: ReconcilerContext, probe: StoreProbe, serves_webhooks: bool = True) -> None:
        super().__init__(context)
        self._probe, self._serves_webhooks = probe, serves_webhooks
        self._secrets = SecretReader(self.client)

    async def reconcile(self, store: BackupStore) -> Result:
        """Implements ``Reconciler``."""
        if is_paused(store):
            return Result()
        access: StoreAccess | None = None
        try:
            await self._ensure_key(store)
            access = await load_access(self._secrets, store)
            report = await self._probe.check(access)
        except StoreProblem as problem:
            report = ProbeReport(reason=problem.reason, message=str(problem))
        await self._write_status(store, access, report)
        return Result(
            requeue_after=jittered(PROBE_INTERVAL_SECONDS if report.ok else RETRY_SECONDS, self.runtime.random)
        )

    async def _ensure_key(self, store: BackupStore) -> None:
        """Create the Secret of the encryption key once. It has no owner, since backups outlive the ``BackupStore``.

        Raises:
            StoreProblem: the Secret is gone, and backups may depend on it.
        """
        key_secret = store.key_secret
        if key_secret is None or store.spec.encryption.secret_ref is not None:
            return
        key = ObjectKey(store.metadata.namespace, key_secret.name)
        if await self._secrets.read(key) is not None:
            return
        # The cache may lack the fingerprint that an earlier reconcile wrote.
        current = await get_live(self.client, BackupStore, store.key)
        known = None if current is None else current.status.key_fingerprint
        if known:
            raise StoreProblem(
                "SecretNotFound",
                f"Secret {key.name} with the encryption key {known} does not exist. Restore it from its export: no"
                " backup can be read without it",
            )
        passphrase = b64encode(secrets.token_bytes(_KEY_BYTES))
        try:
            await self.client.create(
                core.Secret(
                    metadata=meta.ObjectMeta(
                        name=key.name,
                        namespace=key.namespace,
                        labels={"app.kubernetes.io/managed-by": MANAGED_BY, STORE_LABEL: store.metadata.name},
                    ),
                    immutable=True,
                    data={key_secret.key: passphrase},
                )
            )
        except AlreadyExists:
            return
        self.events.normal(store, "EncryptionKeyCreated", f"created Secret {key.name} with the encryption key")

    async def _write_status(self, store: BackupStore, access: StoreAccess | None, report: ProbeReport) -> None:
        now = self.runtime.clock.now()
        if self._status(store, store.status, access, report, now) == store.status:
            return
        # The cache may lag behind our last status, and with it the fingerprint.
        current = (await self.client.live.get(BackupStore, store.key)).status
        previous = find_condition(current.conditions, READY)
        await self.client.apply_status(store, self._status(store, current, access, report, now))
        if previous is None or (previous.reason, previous.message) != (report.reason, truncated(report.message)):
            emit = self.events.normal if report.ok else self.events.warning
            emit(store, report.reason, report.message or "the object store can be used")

    def _status(
        self,
        store: BackupStore,
        previous: BackupStoreStatus,
        access: StoreAccess | None,
        report: ProbeReport,
        now: datetime,
    ) -> BackupStoreStatus:
        """Return the status after a probe.

        Args:
            previous: the last status.
            access: None if a Secret is missing or not valid.
            now: time of the transitions.
        """
        skew, conditions = report.clock_skew_seconds, previous.conditions
        for condition in _conditions(store, access, report):
            observed = replace(condition, observed_generation=store.metadata.generation)
            conditions = set_condition(conditions, observed, now)
        conditions = with_webhooks_condition(conditions, Condition, store, now, served=self._serves_webhooks)
        return replace(
            previous,
            observed_generation=store.metadata.generation,
            conditions=with_kstatus(conditions, now),
            clock_skew_seconds=skew if skew is not None and abs(skew) >= _REPORTED_SKEW_SECONDS else None,
            key_fingerprint=(access.key_fingerprint if access is not None else None) or previous.key_fingerprint,
        )


def _conditions(store: BackupStore, access: StoreAccess | None, report: ProbeReport) -> Iterator[Condition]:
    yield Condition(
        type=READY,
        status="True" if report.ok else "False",
        reason=report.reason,
        message=truncated(report.message),
    )
    fingerprint = access.key_fingerprint if access is not None else store.status.key_fingerprint
    if fingerprint:
        yield _key_condition(store, fingerprint)
    if store.spec.immutability is not None and report.ok:
        pods_only = access is not None and access.needs_identity
        yield _lock_condition(store.spec.immutability.days, report.locked_days, pods_only=pods_only)
    elif store.spec.immutability is None and find_condition(store.status.conditions, OBJECT_LOCK) is not None:
        yield Condition(type=OBJECT_LOCK, status="Unknown", reason="NotDeclared", message="")


def _key_condition(store: BackupStore, fingerprint: str) -> Condition:
    if store.spec.encryption.secret_ref is not None:
        return Condition(type=KEY_EXPORTED, status="True", reason="ProvidedByUser", message="")
    if store.metadata.annotations.get(KEY_EXPORTED_ANNOTATION) == fingerprint:
        return Condition(type=KEY_EXPORTED, status="True", reason="Exported", message="")
    secret = store.key_secret
    assert secret is not None
    return Condition(
        type=KEY_EXPORTED,
        status="False",
        reason="NotExported",
        message=f"backups cannot be read without Secret {secret.name}. Copy it to a safe place outside this cluster,"
        f" then annotate the BackupStore with {KEY_EXPORTED_ANNOTATION}={fingerprint}",
    )


def _lock_condition(expected: int, locked: int | None, *, pods_only: bool) -> Condition:
    if pods_only:
        return Condition(
            type=OBJECT_LOCK,
            status="Unknown",
            reason="NotVerified",
            message="only pods have access to a store with workloadIdentity. Verify the object lock with the tools of"
            " the cloud provider",
        )
    if locked is None:
        return Condition(
            type=OBJECT_LOCK,
            status="Unknown",
            reason="NotVerified",
            message="the credentials do not permit to read the object lock of the bucket. Permit"
            " s3:GetBucketObjectLockConfiguration",
        )
    if locked >= expected:
        return Condition(type=OBJECT_LOCK, status="True", reason="Locked", message="")
    present = f"locks new objects for {locked} days" if locked else "does not lock new objects"
    return Condition(
        type=OBJECT_LOCK,
        status="False",
        reason="LockTooShort",
        message=f"the bucket {present}, and spec.immutability.days is {expected}. Set a default retention of the"
        " bucket",
    )
