"""Resolution of a store and its Secrets."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from database_support.unit.backup_stores import CREDENTIALS, StoresHarness, secret, store
from steersman.meta import Duration
from steersman_databases.api import BackupStore
from steersman_databases.api.backups.backup_common import ArchiveSettings, StoreReference
from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem, key_fingerprint
from steersman_databases.features.backup_store.model import STORE_LABEL, find_store, resolve_access
from steersman_testing import virtual_time

SECRETS = {
    "credentials": secret("credentials", CREDENTIALS),
    "archive-key": secret("archive-key", {"passphrase": b"correct horse"}, {STORE_LABEL: "archive"}),
}


def _problem(declared: BackupStore, **secrets: Any) -> tuple[str, str]:
    with pytest.raises(StoreProblem) as found:
        resolve_access(declared, {**SECRETS, **secrets})
    assert "hush" not in str(found.value)
    return found.value.reason, str(found.value)


def test_document_for_pods_has_all_fields() -> None:
    access = resolve_access(store(immutability={"days": 7}), SECRETS)
    document = access.pod_document(
        engine="mysql", path="shop/mysqlcluster.orders/0123abcd", cluster_uid="0123abcd-1", archive=ArchiveSettings()
    )
    assert document == {
        "format": 1,
        "service": "s3",
        "engine": "mysql",
        "cluster_uid": "0123abcd-1",
        "path": "shop/mysqlcluster.orders/0123abcd",
        "prefix": "",
        "bucket": "backups",
        "endpoint": "https://s3.example.com",
        "region": "us-east-1",
        "addressing": "Auto",
        "account": "",
        "ca": "",
        "accessKeyId": "AKID",
        "secretAccessKey": "hush",
        "sessionToken": "",
        "passphrase": "correct horse",
        "immutabilityDays": 7,
        "interval_seconds": 5.0,
        "on_volume_full": "StopWrites",
    }
    assert "hush" not in repr(access) and "correct horse" not in repr(access)


def test_declared_names_and_settings_are_used() -> None:
    pem = b"-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
    declared = store(
        s3={
            "bucket": "backups",
            "prefix": "team/a",
            "region": "eu-west-1",
            "addressing": "Path",
            "caSecretRef": {"name": "authority", "key": "ca.pem"},
        },
        credentials={
            "secretRef": {
                "name": "keys",
                "accessKeyIdKey": "id",
                "secretAccessKeyKey": "secret",
                "sessionTokenKey": "token",
            }
        },
        encryption={"secretRef": {"name": "own", "key": "word"}},
    )
    secrets = {
        "keys": secret("keys", {"id": b"AK", "secret": b"SK", "token": b"ST"}),
        "authority": secret("authority", {"ca.pem": pem}),
        "own": secret("own", {"word": b"correct horse"}),
    }
    access = resolve_access(declared, secrets)
    settings = ArchiveSettings(interval=Duration("10s"), on_volume_full="DropArchive")
    document = access.pod_document(engine="postgresql", path="p", cluster_uid="", archive=settings)
    assert (document["accessKeyId"], document["secretAccessKey"], document["sessionToken"]) == ("AK", "SK", "ST")
    assert (document["prefix"], document["region"], document["addressing"]) == ("team/a", "eu-west-1", "Path")
    assert (document["ca"], document["passphrase"]) == (pem.decode().rstrip("\n"), "correct horse")
    assert (document["interval_seconds"], document["on_volume_full"]) == (10.0, "DropArchive")


def test_incomplete_secrets_are_named() -> None:
    token = {"secretRef": {"name": "credentials", "sessionTokenKey": "TOKEN"}}
    ca = {"bucket": "backups", "caSecretRef": {"name": "authority"}}
    assert _problem(store(credentials={"secretRef": {"name": "none"}})) == (
        "SecretNotFound",
        "spec.credentials.secretRef: Secret none does not exist. Create it",
    )
    for declared, secrets, message in (
        (store(credentials=token), {}, "Secret credentials has no TOKEN"),
        (store(), {"credentials": secret("credentials", {"SECRET_ACCESS_KEY": b"\xff"})}, "is not UTF-8"),
        (store(), {"credentials": secret("credentials", {"SECRET_ACCESS_KEY": b"a\nb"})}, "has control characters"),
        (store(), {"credentials": secret("credentials", {"SECRET_ACCESS_KEY": b"a" * 65537})}, "more than 64 KiB"),
        (store(s3=ca), {"authority": secret("authority", {"ca.crt": b"rubbish"})}, "is not PEM"),
        (store(), {"archive-key": secret("archive-key", {"passphrase": b"x"})}, "not created for this BackupStore"),
    ):
        reason, text = _problem(declared, **secrets)
        assert reason == "SecretInvalid" and message in text


def test_key_other_than_known_one_is_refused() -> None:
    declared = store()
    known = replace(declared, status=replace(declared.status, key_fingerprint="0" * 16))
    reason, message = _problem(known)
    assert reason == "WrongEncryptionKey" and key_fingerprint("correct horse") in message


def test_other_services_are_resolved() -> None:
    access = resolve_access(store(s3=None, gcs={"bucket": "backups"}), SECRETS)
    assert access.service == "gcs"
    document = access.pod_document(engine="mysql", path="p", cluster_uid="u", archive=ArchiveSettings())
    assert (document["service"], document["secretAccessKey"]) == ("gcs", "hush")
    azure = resolve_access(store(s3=None, azure={"container": "backups", "account": "acc"}), SECRETS)
    assert (azure.service, azure.bucket, azure.account) == ("azure", "backups", "acc")


@virtual_time
async def test_store_elsewhere_needs_permission() -> None:
    harness = StoresHarness()
    await harness.client.create(store(allowedNamespaces=["friends"]))
    async with harness.operator() as manager:
        client = manager.client
        found = await find_store(client, StoreReference(name="archive", namespace="shop"), "friends")
        assert found.metadata.name == "archive"
        messages = set[str]()
        for name in ("archive", "missing"):
            with pytest.raises(StoreProblem) as refused:
                await find_store(client, StoreReference(name=name, namespace="shop"), "strangers")
            messages.add(str(refused.value).replace(name, "NAME"))
        assert len(messages) == 1


def test_access_without_encryption_has_no_fingerprint() -> None:
    assert StoreAccess(bucket="backups").key_fingerprint == ""
