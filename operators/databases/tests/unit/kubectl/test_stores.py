"""``kubectl steersman store``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from database_support.unit.plugin import KEY, call, reached, server
from steersman.api.apply import core, meta
from steersman.client import Client
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta, decode_builtins
from steersman_databases.api import BackupStore, BackupStoreSpec
from steersman_databases.features.backup_store.access import StoreAccess, key_fingerprint
from steersman_databases.features.backup_store.listing import StoredArchive, StoredBackup, StoreListing
from steersman_databases.features.backup_store.probe_process import ProbeProcess
from steersman_databases.features.backup_store.report import ProbeReport
from steersman_testing import InMemoryApiServer, matching

__all__ = ["reached", "server"]

PASSPHRASE = "c2VjcmV0LXBhc3NwaHJhc2U="
SPEC = {"s3": {"bucket": "backups"}, "credentials": {"secretRef": {"name": "keys"}}}
ARCHIVE = StoredArchive(path="prod/postgresqlcluster.shop/0123abcd", engine="postgresql", cluster_uid="0123abcd-1")
BACKUP = StoredBackup(id="20261128-100000F", type="Full", stop="2026-11-28T10:03:00+00:00", stored_bytes=3 << 20)


class PlayedProbe(ProbeProcess):
    """A store without a process."""

    report = ProbeReport(clock_skew_seconds=0, locked_days=30)

    async def check(self, access: StoreAccess) -> ProbeReport:
        assert access.secret_access_key == "key"
        return type(self).report

    async def list(self, access: StoreAccess, path: str = "") -> StoreListing:
        if path not in ("", ARCHIVE.path):
            return StoreListing(reason="StoreUnreachable", message="the object store cannot be reached")
        return StoreListing(backups=(BACKUP,)) if path else StoreListing(archives=(ARCHIVE,))


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch) -> type[PlayedProbe]:
    monkeypatch.setattr("steersman_databases.kubectl.backup.store_commands.ProbeProcess", PlayedProbe)
    return PlayedProbe


def create_store(server: InMemoryApiServer, **spec: Any) -> None:
    """Create a store with the key that the operator generated."""

    async def create() -> None:
        client = Client(server)
        labels = {"databases.steersman.dev/backup-store": "archive"}
        for name, data in (
            ("keys", {"ACCESS_KEY_ID": b"id", "SECRET_ACCESS_KEY": b"key"}),
            ("archive-key", {"passphrase": PASSPHRASE.encode()}),
        ):
            metadata = meta.ObjectMeta(name=name, namespace=KEY.namespace, labels=labels)
            await client.apply(core.Secret(metadata=metadata, data=data))
        metadata = ObjectMeta(name="archive", namespace=KEY.namespace, annotations=FrozenDict[str, str]())
        await client.create(BackupStore(metadata=metadata, spec=decode_builtins({**SPEC, **spec}, BackupStoreSpec)))

    asyncio.run(create())


def read_store(server: InMemoryApiServer) -> BackupStore:
    return asyncio.run(Client(server).get(BackupStore, ObjectKey(KEY.namespace, "archive")))


def test_ls_lists_archives_and_backups(server: InMemoryApiServer) -> None:
    create_store(server)
    archives = call("store", "ls", "archive", "-n", "prod")
    assert ARCHIVE.path in archives.stdout and "0123abcd-1" in archives.stdout
    backups = call("store", "ls", "archive", ARCHIVE.path + "/", "-n", "prod")
    assert [line.split()[:2] for line in backups.stdout.splitlines()[1:]] == [["20261128-100000F", "Full"]]
    assert "3.0 MiB" in backups.stdout and "Complete" in backups.stdout
    found = json.loads(call("store", "ls", "archive", ARCHIVE.path, "-n", "prod", "-o", "json").stdout)
    assert found[0]["id"] == BACKUP.id


def test_ls_of_unreachable_store_names_the_problem(server: InMemoryApiServer) -> None:
    create_store(server)
    result = call("store", "ls", "archive", "elsewhere", "-n", "prod")
    assert (result.exit_code, "cannot be reached" in result.stderr) == (1, True)


def test_key_is_exported_once_and_marked(server: InMemoryApiServer, tmp_path: Path) -> None:
    create_store(server)
    file = tmp_path / "archive-key.yaml"
    result = call("store", "key", "archive", "-n", "prod", "--file", str(file))
    assert result.exit_code == 0 and PASSPHRASE not in result.output
    assert file.stat().st_mode & 0o777 == 0o600
    manifest = yaml.safe_load(file.read_text())
    assert set(manifest["metadata"]) == {"name", "namespace", "labels"}
    annotation = read_store(server).metadata.annotations["databases.steersman.dev/key-exported"]
    assert annotation == key_fingerprint(PASSPHRASE)
    again = call("store", "key", "archive", "-n", "prod", "--file", str(file))
    assert (again.exit_code, "exists" in again.stderr) == (2, True)
    # The file is enough for another Kubernetes cluster.
    other = InMemoryApiServer()
    other.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KEY.namespace}}, manifest)


def test_key_of_unmarked_store_names_file_and_annotation(server: InMemoryApiServer, tmp_path: Path) -> None:
    create_store(server)
    file = tmp_path / "key.yaml"
    server.fail_next(matching("PATCH", "/backupstores"), 403)
    result = call("store", "key", "archive", "-n", "prod", "--file", str(file))
    message = " ".join(result.stderr.split())
    assert (result.exit_code, "cannot be marked" in message, "key-exported=" in message) == (1, True, True)
    assert yaml.safe_load(file.read_text())["kind"] == "Secret"


def test_partial_key_file_is_removed(
    server: InMemoryApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    create_store(server)
    monkeypatch.setattr("steersman_databases.kubectl.backup.stores.yaml.safe_dump", fill_disk)
    result = call("store", "key", "archive", "-n", "prod", "--file", str(tmp_path / "key.yaml"))
    assert (result.exit_code, "No space left" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_key_of_store_without_encryption_is_refused(server: InMemoryApiServer, tmp_path: Path) -> None:
    create_store(server, encryption={"mode": "Disabled"})
    result = call("store", "key", "archive", "-n", "prod", "--file", str(tmp_path / "key.yaml"))
    assert result.exit_code == 1 and "Disabled" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_check_reports_problem_by_exit_code(server: InMemoryApiServer, probe: type[PlayedProbe]) -> None:
    create_store(server)
    usable = call("store", "check", "archive", "-n", "prod")
    assert usable.exit_code == 0 and "Reachable" in usable.stdout and "30 days" in usable.stdout
    probe.report, before = ProbeReport(reason="CredentialsRejected", message="the key is unknown"), probe.report
    rejected = call("store", "check", "archive", "-n", "prod", "-o", "json")
    probe.report = before
    assert (rejected.exit_code, json.loads(rejected.stdout)["reason"]) == (1, "CredentialsRejected")


def test_check_names_missing_secret(server: InMemoryApiServer) -> None:
    create_store(server, credentials={"secretRef": {"name": "other"}})
    result = call("store", "check", "archive", "-n", "prod")
    assert result.exit_code == 1 and "SecretNotFound" in result.stdout and "Secret other" in result.stdout
