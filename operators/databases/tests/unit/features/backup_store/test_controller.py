"""The controller of backup stores with a probe in memory."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace

from database_support.unit.backup_stores import ARCHIVE, CREDENTIALS, StoresHarness, secret, store
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import BackupStore
from steersman_databases.api.backups.backup_store import KEY_EXPORTED_ANNOTATION
from steersman_databases.features.backup_store.access import key_fingerprint
from steersman_databases.features.backup_store.report import ProbeReport
from steersman_testing import virtual_time


async def _ready(harness: StoresHarness) -> None:
    await harness.client.create(secret("credentials", CREDENTIALS))
    await harness.client.create(store())
    await harness.until("ready", lambda: harness.reason() == "Reachable")


@virtual_time
async def test_store_gets_key_without_owner() -> None:
    harness = StoresHarness()
    async with harness.operator():
        await _ready(harness)
    created = harness.key_secret()
    assert created is not None and created.immutable and created.metadata.owner_references == ()
    passphrase = created.data["passphrase"].decode()
    assert len(b64decode(passphrase)) == 32
    status = harness.read().status
    assert status.key_fingerprint == key_fingerprint(passphrase)
    assert harness.probe.checked[-1].passphrase == passphrase
    assert harness.probe.checked[-1].secret_access_key == "hush"
    assert passphrase not in repr(status) and "hush" not in repr(harness.probe.checked)


@virtual_time
async def test_key_outlives_store_and_returns() -> None:
    harness = StoresHarness()
    async with harness.operator():
        await _ready(harness)
        first = harness.key_secret()
        await harness.client.delete(BackupStore, ARCHIVE)
        await harness.client.create(store())
        await harness.until("ready again", lambda: harness.reason() == "Reachable")
    assert first is not None and harness.key_secret() == first


@virtual_time
async def test_lost_key_is_never_replaced() -> None:
    harness = StoresHarness()
    async with harness.operator():
        await _ready(harness)
        kept = harness.key_secret()
        assert kept is not None
        await harness.client.delete(Secret, kept.key)
        await harness.until("reported", lambda: harness.reason() == "SecretNotFound")
        assert harness.key_secret() is None
        condition = harness.condition()
        assert condition is not None and str(harness.read().status.key_fingerprint) in condition.message
        await harness.client.create(secret("archive-key", kept.data, kept.metadata.labels))
        await harness.until("restored", lambda: harness.reason() == "Reachable")


@virtual_time
async def test_other_key_is_refused() -> None:
    harness = StoresHarness()
    async with harness.operator():
        await _ready(harness)
        known, kept = harness.read().status.key_fingerprint, harness.key_secret()
        assert kept is not None
        await harness.client.delete(Secret, kept.key)
        await harness.client.create(secret("archive-key", {"passphrase": b"another"}, kept.metadata.labels))
        await harness.until("refused", lambda: harness.reason() == "WrongEncryptionKey")
        assert harness.read().status.key_fingerprint == known


@virtual_time
async def test_foreign_secret_is_not_used_as_key() -> None:
    harness = StoresHarness()
    await harness.client.create(secret("archive-key", {"passphrase": b"of something else"}))
    async with harness.operator():
        await harness.client.create(secret("credentials", CREDENTIALS))
        await harness.client.create(store())
        await harness.until("refused", lambda: harness.reason() == "SecretInvalid")
    assert harness.probe.checked == []


@virtual_time
async def test_key_is_reported_until_exported() -> None:
    harness = StoresHarness()
    async with harness.operator():
        await _ready(harness)
        assert harness.reason("EncryptionKeyExported") == "NotExported"
        for fingerprint, reason in (("0" * 16, "NotExported"), (harness.read().status.key_fingerprint, "Exported")):
            annotations = {KEY_EXPORTED_ANNOTATION: fingerprint}
            await harness.client.patch(BackupStore, ARCHIVE, MergePatch({"metadata": {"annotations": annotations}}))
            probes = len(harness.probe.checked)
            await harness.until("seen", lambda known=probes: len(harness.probe.checked) > known)
            await harness.until(reason, lambda wanted=reason: harness.reason("EncryptionKeyExported") == wanted)


@virtual_time
async def test_changed_secret_is_probed_at_once() -> None:
    harness = StoresHarness()
    harness.probe.report = ProbeReport(reason="CredentialsRejected", message="spec.credentials.secretRef: rejected")
    async with harness.operator():
        await harness.client.create(store())
        await harness.until("missing", lambda: harness.reason() == "SecretNotFound")
        await harness.client.create(secret("credentials", CREDENTIALS))
        await harness.until("rejected", lambda: harness.reason() == "CredentialsRejected", 5)
        harness.probe.report = ProbeReport()
        changed = {"data": {"SECRET_ACCESS_KEY": "bmV3"}}
        await harness.client.patch(Secret, ObjectKey("shop", "credentials"), MergePatch(changed))
        await harness.until("accepted", lambda: harness.reason() == "Reachable", 5)
        assert harness.probe.checked[-1].secret_access_key == "new"
        await harness.runtime.clock.sleep(10)
    assert {"SecretNotFound", "CredentialsRejected", "Reachable"} <= set(harness.events())


@virtual_time
async def test_probe_is_repeated_every_five_minutes() -> None:
    harness = StoresHarness()
    async with harness.operator():
        await _ready(harness)
        await harness.runtime.clock.sleep(5)
        settled = len(harness.probe.checked)
        await harness.runtime.clock.sleep(3600)
        assert 12 <= len(harness.probe.checked) - settled <= 14
        harness.probe.report = ProbeReport(reason="StoreUnreachable", message="gone", clock_skew_seconds=90)
        await harness.until("reported", lambda: harness.reason() == "StoreUnreachable")
        assert harness.read().status.clock_skew_seconds == 90
        harness.probe.report = ProbeReport(clock_skew_seconds=1)
        await harness.until("recovered", lambda: harness.reason() == "Reachable", 65)
        assert harness.read().status.clock_skew_seconds is None


@virtual_time
async def test_object_lock_is_compared_with_declared_days() -> None:
    harness = StoresHarness()
    async with harness.operator():
        await harness.client.create(secret("credentials", CREDENTIALS))
        await harness.client.create(store(immutability={"days": 30}))
        for days, reason in ((None, "NotVerified"), (7, "LockTooShort"), (30, "Locked")):
            harness.probe.report = replace(harness.probe.report, locked_days=days)
            await harness.until(reason, lambda wanted=reason: harness.reason("ObjectLock") == wanted)


@virtual_time
async def test_disabled_encryption_creates_no_key() -> None:
    harness = StoresHarness()
    async with harness.operator():
        await harness.client.create(secret("credentials", CREDENTIALS))
        await harness.client.create(store(encryption={"mode": "Disabled"}))
        await harness.until("ready", lambda: harness.reason() == "Reachable")
    assert harness.key_secret() is None
    assert harness.condition("EncryptionKeyExported") is None
