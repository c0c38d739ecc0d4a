"""The manifest of an object store has credentials in a Secret only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.process import Process
from devcluster.store import ObjectStore, manifests
from devcluster.store.directory import StoreDirectory
from devcluster.store.toxiproxy import Toxiproxy
from steersman.meta import decode_builtins
from steersman_databases.api import BackupStore
from steersman_manifests.crd import violations

ENDPOINT = "https://store.object-store.svc.cluster.local:9000"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    this = Process.of(os.getpid())
    assert this is not None
    directory = StoreDirectory(tmp_path)
    directory.create(["localhost"])
    toxiproxy = Toxiproxy("127.0.0.1", 1)
    return ObjectStore(directory, this, this, "https://198.18.231.2:9000", ENDPOINT, toxiproxy, volume_limited=True)


def objects(store: ObjectStore) -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all(manifests.render(store, "shop"))
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def test_manifest_has_store_and_secrets(store: ObjectStore) -> None:
    found = objects(store)
    assert list(found) == ["Secret/store-credentials", "Secret/store-ca", "BackupStore/store"]
    assert {each["metadata"]["namespace"] for each in found.values()} == {"shop"}
    assert found["Secret/store-credentials"]["stringData"] == {
        "ACCESS_KEY_ID": store.credentials.access_key_id,
        "SECRET_ACCESS_KEY": store.credentials.secret_access_key,
    }
    assert found["Secret/store-ca"]["stringData"]["ca.crt"] == store.ca_file.read_text()


def test_manifest_refers_to_the_endpoint_of_pods(store: ObjectStore) -> None:
    assert objects(store)["BackupStore/store"]["spec"] == {
        "s3": {
            "bucket": "backups",
            "endpoint": ENDPOINT,
            "region": "us-east-1",
            "addressing": "Path",
            "caSecretRef": {"name": "store-ca"},
        },
        "credentials": {"secretRef": {"name": "store-credentials"}},
    }


def test_manifest_is_valid_for_the_operator(store: ObjectStore) -> None:
    decoded = decode_builtins(objects(store)["BackupStore/store"], BackupStore)
    assert violations(decoded) == ()
    assert decoded.spec.s3 is not None
    assert decoded.spec.s3.endpoint == ENDPOINT
    assert decoded.spec.s3.ca_secret_ref is not None
    assert decoded.spec.s3.ca_secret_ref.name == manifests.CA_SECRET
    assert decoded.spec.credentials.secret_ref is not None
    assert decoded.spec.credentials.secret_ref.name == manifests.CREDENTIALS_SECRET
