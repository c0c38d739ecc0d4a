"""The store file and the configuration that is rendered from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steersman_instance.archive.errors import classify
from steersman_instance.archive.pgbackrest import configuration_file, render_configuration, write_configuration
from steersman_instance.archive.store_file import MAX_FILE_BYTES, InvalidStoreFile, Store, load_store, parse_store
from steersman_instance.paths import InstancePaths

SECRETS = ("AKIDEXAMPLE", "top-secret-key", "session-token", "the-passphrase")
FIELDS: dict[str, Any] = {
    "format": 1,
    "engine": "postgresql",
    "cluster_uid": "b1a2",
    "service": "s3",
    "path": "shop/postgresqlcluster.orders/b1a2c3d4",
    "prefix": "backups/prod",
    "bucket": "wal",
    "endpoint": "https://s3.example.com:9000",
    "region": "eu-1",
    "addressing": "Auto",
    "ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "accessKeyId": SECRETS[0],
    "secretAccessKey": SECRETS[1],
    "sessionToken": SECRETS[2],
    "passphrase": SECRETS[3],
    "interval_seconds": 60,
    "on_volume_full": "StopWrites",
}


@pytest.fixture
def paths(tmp_path: Path) -> InstancePaths:
    return InstancePaths(volume=tmp_path / "data", run=tmp_path / "run", store_file=tmp_path / "store.json")


def test_missing_or_empty_file_is_no_store(tmp_path: Path) -> None:
    file = tmp_path / "store.json"
    assert load_store(file) is None
    file.write_text(" \n")
    assert load_store(file) is None


def test_store_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "store.json"
    file.write_text(json.dumps({**FIELDS, "later": True}))
    store = load_store(file)
    assert store is not None
    assert store.root == "backups/prod/shop/postgresqlcluster.orders/b1a2c3d4"
    assert store.on_volume_full == "StopWrites"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"format": 2}, "format"),
        ({"engine": "oracle"}, "engine"),
        ({"bucket": ""}, "bucket"),
        ({"bucket": "a\nrepo1-host=evil"}, "bucket"),
        ({"path": "../other"}, "path"),
        ({"path": ""}, "path"),
        ({"endpoint": "s3.example.com"}, "endpoint"),
        ({"endpoint": "https://host/bucket"}, "endpoint"),
        ({"endpoint": "https://[::1"}, "endpoint"),
        ({"region": 7}, "region"),
        ({"secretAccessKey": "x\ny"}, "secretAccessKey"),
        ({"secretAccessKey": ""}, "secretAccessKey"),
        ({"passphrase": "x" * 5000}, "passphrase"),
        ({"interval_seconds": True}, "interval_seconds"),
        ({"on_volume_full": "Explode"}, "on_volume_full"),
        ({"service": "azure"}, "account"),
    ],
)
def test_invalid_field_is_named_without_its_value(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidStoreFile, match=named) as raised:
        parse_store({**FIELDS, **change})
    assert not any(secret in str(raised.value) for secret in SECRETS)


@pytest.mark.parametrize("content", ['{"secretAccessKey": "top-secret-key"', "[]", "[" * 100_000])
def test_malformed_file_is_refused_without_content(tmp_path: Path, content: str) -> None:
    file = tmp_path / "store.json"
    file.write_text(content)
    with pytest.raises(InvalidStoreFile) as raised:
        load_store(file)
    assert "top-secret" not in f"{raised.value!r} {raised.value.__cause__!r}"
    file.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(InvalidStoreFile, match="bytes"):
        load_store(file)


def test_store_repr_has_no_secret() -> None:
    assert not any(secret in repr(parse_store(FIELDS)) for secret in SECRETS)


def test_configuration_is_private_and_complete(paths: InstancePaths) -> None:
    file = write_configuration(parse_store(FIELDS), paths)
    assert file == configuration_file(paths)
    assert file.stat().st_mode & 0o777 == 0o600
    lines = file.read_text().splitlines()
    assert "repo1-path=/backups/prod/shop/postgresqlcluster.orders/b1a2c3d4/pgbackrest" in lines
    assert {"repo1-s3-uri-style=path", "repo1-cipher-type=aes-256-cbc", "archive-mode-check=n"} <= set(lines)
    assert {"tls-server-auth=steersman_backup=main", f"pg1-path={paths.postgresql_data}"} <= set(lines)
    (ca,) = [line.partition("=")[2] for line in lines if line.startswith("repo1-storage-ca-file")]
    assert Path(ca).read_text() == FIELDS["ca"]


def test_workload_identity_is_never_that_of_node() -> None:
    store = parse_store({**FIELDS, "accessKeyId": "", "secretAccessKey": "", "endpoint": ""})
    rendered = render_configuration(store)
    assert "repo1-s3-key-type=web-id\n" in rendered
    assert "repo1-s3-key=" not in rendered
    assert "repo1-s3-uri-style=host\n" in rendered


def test_other_credentials_keep_identity_of_store() -> None:
    rotated = parse_store({**FIELDS, "accessKeyId": "other", "secretAccessKey": "other"})
    moved = parse_store({**FIELDS, "bucket": "other"})
    assert rotated.identity == parse_store(FIELDS).identity != moved.identity


STORE: Store = parse_store(FIELDS)


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (
            49,
            "ERROR: [049]: unable to connect to 's3.example.com:9000': [111] Connection refused",
            "StoreUnreachable",
        ),
        (42, "ERROR: [042]: timeout after 5000ms waiting for read from 's3.example.com'", "StoreUnresponsive"),
        (
            39,
            "ERROR: [039]: HTTP request failed with 403 (Forbidden):\n<Code>InvalidAccessKeyId",
            "CredentialsRejected",
        ),
        (39, "ERROR: [039]: HTTP request failed with 404:\n<Code>NoSuchBucket</Code>", "BucketNotFound"),
        (39, "ERROR: [039]: HTTP request failed with 507 (Insufficient Storage):", "StoreFull"),
        (95, "ERROR: [095]: unable to verify certificate presented by 'localhost'", "CertificateNotTrusted"),
        (95, "ERROR: [095]: cipher header invalid \x00\xff", "WrongEncryptionKey"),
        (
            44,
            "ERROR: [044]: WAL segment system-id 1 does not match archive system-id 2",
            "PathBelongsToAnotherCluster",
        ),
        (26, "ERROR: [026]: invalid checksum", "ArchiveDamaged"),
        (99, "", "ArchiveFailed"),
    ],
)
def test_failure_has_reason_and_clean_sentence(code: int, output: str, reason: str) -> None:
    error = classify(STORE, code, output)
    assert error.reason == reason
    assert error.message.isprintable()
    assert error.message.endswith(".")
    assert len(error.message) < 300
