"""pgBackRest reads the configuration of each kind of object store."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from database_support.servers.archiving_instance import programs_directory
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.archive.repository import Repository
from steersman_instance.archive.store_file import parse_store
from steersman_instance.paths import InstancePaths

FIELDS: dict[str, Any] = {
    "format": 1,
    "engine": "postgresql",
    "cluster_uid": "0a1b2c3d-1",
    "path": "shop/postgresqlcluster.orders/0a1b2c3d",
    "bucket": "backups",
    "account": "exampleaccount",
    "passphrase": "word",
}


@pytest.fixture
def refusing_port() -> Generator[int]:
    """A port of loopback that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def _key_of_google(port: int) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    fields = {"type": "service_account", "private_key_id": "1", "private_key": pem.decode()}
    account = "backups@project-1.iam.gserviceaccount.com"
    return json.dumps({**fields, "client_email": account, "token_uri": f"https://127.0.0.1:{port}/token"})


@pytest.mark.parametrize("service", ["gcs", "azure"])
def test_pgbackrest_connects_with_key(
    service: str, refusing_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = programs_directory(tmp_path)
    if linked is None:
        pytest.skip("pgBackRest is not unpacked: run devcluster servers")
    monkeypatch.setenv("PATH", str(linked), prepend=":")
    key = _key_of_google(refusing_port) if service == "gcs" else "aHVzaA=="
    store = parse_store({**FIELDS, "service": service, "secretAccessKey": key})
    paths = InstancePaths(volume=tmp_path / "data", run=tmp_path / "run", store_file=tmp_path / "store.json")
    # Google's client requests a token first, from the host that the key names.
    host = [] if service == "gcs" else [f"--repo1-storage-host=https://127.0.0.1:{refusing_port}"]
    with pytest.raises(ArchiveError) as found:
        Repository(store, paths).run("repo-ls", "archive/main", options=[*host, "--io-timeout=1"], seconds=60)
    assert found.value.reason == "StoreUnreachable", found.value.detail
    assert f"127.0.0.1:{refusing_port}" in found.value.detail
