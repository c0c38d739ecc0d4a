"""The probe process against a real object store (versitygw) over TLS, behind a proxy that breaks connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.store import ObjectStore, local_store, programs
from framework_support.certificates import CertificateAuthority
from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem
from steersman_databases.features.backup_store.layout import IDENTITY_OBJECT, ArchiveIdentity
from steersman_databases.features.backup_store.probe_process import ProbeProcess

pytestmark = [
    pytest.mark.skipif(not programs.are_built(), reason="the object store is not built: run devcluster store build"),
    pytest.mark.xdist_group("store-probe"),
]
PATH = "shop/postgresqlcluster.orders/0123abcd"
IDENTITY = ArchiveIdentity(engine="postgresql", cluster_uid="0123abcd-1", key_fingerprint="f" * 16)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with local_store(tmp_path_factory.mktemp("store"), object_lock=True) as started:
        yield started


@pytest.fixture
def access(store: ObjectStore) -> StoreAccess:
    """Access that the store accepts."""
    return StoreAccess(
        bucket=store.bucket,
        prefix="team-a",
        endpoint=store.host_endpoint,
        region=store.region,
        ca=store.ca_file.read_text(),
        access_key_id=store.credentials.access_key_id,
        secret_access_key=store.credentials.secret_access_key,
    )


async def _reason(access: StoreAccess) -> tuple[str, str]:
    report = await ProbeProcess().check(access)
    assert access.secret_access_key not in repr(report)
    return report.reason, report.message


async def test_probe_of_usable_store_reports_clock(access: StoreAccess, store: ObjectStore) -> None:
    for _ in range(2):
        report = await ProbeProcess().check(access)
        assert (report.reason, report.message) == ("Reachable", "")
        assert report.clock_skew_seconds is not None and abs(report.clock_skew_seconds) <= 2
    assert list(store.keys("team-a")) == ["team-a/steersman-probe"]


async def test_probe_names_rejected_credentials(access: StoreAccess) -> None:
    reason, message = await _reason(replace(access, access_key_id="AKUNKNOWN"))
    assert reason == "CredentialsRejected" and "does not know the access key ID" in message
    reason, message = await _reason(replace(access, secret_access_key="x" * 30))
    assert reason == "CredentialsRejected" and "does not belong to the access key ID" in message


async def test_probe_names_missing_bucket_and_region(access: StoreAccess) -> None:
    reason, message = await _reason(replace(access, bucket="nothing-here"))
    assert reason == "BucketNotFound" and message.startswith("spec.s3.bucket")
    assert await _reason(replace(access, region="eu-west-1")) == (
        "WrongRegion",
        "spec.s3.region is not that of the bucket. Set it to us-east-1",
    )


async def test_probe_names_untrusted_authority(access: StoreAccess) -> None:
    for ca in ("", CertificateAuthority().certificate.decode()):
        reason, message = await _reason(replace(access, ca=ca))
        assert reason == "CertificateNotTrusted" and "spec.s3.caSecretRef" in message
    reason, message = await _reason(replace(access, ca="-----BEGIN CERTIFICATE-----\nrubbish"))
    assert reason == "SecretInvalid" and "spec.s3.caSecretRef" in message


async def test_probe_names_wrong_addressing(access: StoreAccess) -> None:
    reason, message = await _reason(replace(access, addressing="VirtualHost"))
    assert reason in ("StoreUnreachable", "CertificateNotTrusted")
    assert "set spec.s3.addressing to Path" in message


async def test_probe_of_store_without_response_ends(access: StoreAccess, store: ObjectStore) -> None:
    with store.blackholed():
        reason, message = await asyncio.wait_for(_reason(access), 25)
    assert reason == "StoreUnresponsive" and message.startswith("spec.s3.endpoint")
    with store.stopped():
        reason, message = await _reason(access)
    assert reason == "StoreUnreachable" and message.startswith("spec.s3.endpoint")
    reason, message = await _reason(replace(access, endpoint="https://store.invalid"))
    assert reason == "StoreUnreachable" and "store.invalid cannot be resolved" in message


async def test_claim_creates_identity_once(access: StoreAccess, store: ObjectStore) -> None:
    probe, name = ProbeProcess(), f"team-a/{PATH}/{IDENTITY_OBJECT}"
    await asyncio.gather(*(probe.claim(access, PATH, IDENTITY) for _ in range(3)))
    assert store.read(name) == IDENTITY.to_json()
    with pytest.raises(StoreProblem, match="belongs to the postgresql cluster with UID 0123abcd-1") as refused:
        await probe.claim(access, PATH, replace(IDENTITY, cluster_uid="0123abcd-2"))
    assert refused.value.reason == "PathBelongsToAnotherCluster"
    with pytest.raises(StoreProblem, match=f"uses the encryption key {'f' * 16}") as refused:
        await probe.claim(access, PATH, replace(IDENTITY, key_fingerprint="0" * 16))
    assert refused.value.reason == "WrongEncryptionKey"
    assert store.read(name) == IDENTITY.to_json()


async def test_probe_reports_missing_object_lock(access: StoreAccess) -> None:
    report = await ProbeProcess().check(replace(access, immutability_days=30))
    assert (report.reason, report.locked_days) == ("Reachable", 0)


async def test_probe_leaves_secrets_out_of_arguments(access: StoreAccess, store: ObjectStore) -> None:
    """While a probe waits for the store, /proc shows neither secret in its arguments nor in its environment."""
    with store.blackholed():
        running = asyncio.create_task(ProbeProcess().check(access))
        content = b""
        async with asyncio.timeout(5):
            while not content:
                await asyncio.sleep(0.02)
                content = b"".join(map(_visible, _children()))
        await running
    assert b"backup_store.probe" in content
    assert access.secret_access_key.encode() not in content


def _children() -> list[Path]:
    found: list[Path] = []
    for path in Path("/proc/self/task").glob("*/children"):
        found += [Path("/proc") / pid for pid in path.read_text().split()]
    return [path for path in found if b"backup_store.probe" in (path / "cmdline").read_bytes()]


def _visible(process: Path) -> bytes:
    return (process / "cmdline").read_bytes() + (process / "environ").read_bytes()


async def test_listing_has_archives_and_backups(access: StoreAccess) -> None:
    access = replace(access, prefix="listed")
    probe = ProbeProcess()
    assert (await probe.list(access)).archives == ()
    other = "shop/mysqlcluster.stock/89abcdef"
    await probe.claim(access, PATH, IDENTITY)
    await probe.claim(access, other, replace(IDENTITY, engine="mysql", cluster_uid="89abcdef-1"))
    listed = await probe.list(access)
    assert [(each.path, each.engine, each.cluster_uid) for each in listed.archives] == [
        (other, "mysql", "89abcdef-1"),
        (PATH, "postgresql", "0123abcd-1"),
    ]
    assert (await probe.list(access, PATH)).backups == ()
    refused = await probe.list(replace(access, access_key_id="AKUNKNOWN"))
    assert refused.reason == "CredentialsRejected"
