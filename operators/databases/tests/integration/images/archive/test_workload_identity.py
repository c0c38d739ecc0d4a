"""Programs of the images with a web identity: a local token service, and a real object store."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from database_support.servers.archiving_instance import programs_directory
from database_support.servers.mysql_archive import store_document
from database_support.servers.token_service import TokenService, token_service
from devcluster import database_servers
from devcluster.store import ObjectStore, local_store, programs
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.archive.objects import open_objects
from steersman_instance.archive.ownership import OWNERSHIP_FILE, check_owner
from steersman_instance.archive.repository import Repository
from steersman_instance.archive.store_file import Store, parse_store
from steersman_instance.backup.restic import Restic
from steersman_instance.paths import InstancePaths

pytestmark = [
    pytest.mark.skipif(not programs.are_built(), reason="the object store is not built: run devcluster store build"),
    pytest.mark.xdist_group("workload-identity"),
]
ROLE = "arn:aws:iam::123456789012:role/backups"
ROOT = database_servers.root(database_servers.SID)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Generator[ObjectStore]:
    with local_store(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture
def service(running: ObjectStore, tmp_path: Path) -> Generator[TokenService]:
    name = f"sts.{running.region}.amazonaws.com"
    with token_service(tmp_path, "token of the pod", running.credentials, (name,)) as found:
        yield found


@pytest.fixture
def paths(tmp_path: Path) -> InstancePaths:
    return InstancePaths(volume=tmp_path / "data", run=tmp_path / "run", store_file=tmp_path / "store.json")


@pytest.fixture
def store(running: ObjectStore, service: TokenService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store without credentials, and the variables of a pod with a token."""
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text(service.token)
    ca.write_bytes(running.ca_file.read_bytes() + service.ca)
    variables = {
        "AWS_ROLE_ARN": ROLE,
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_REGION": running.region,
        "AWS_ENDPOINT_URL_STS": f"https://localhost:{service.port}",
        "HTTPS_PROXY": f"http://127.0.0.1:{service.proxy_port}",
        "NO_PROXY": "localhost,127.0.0.1",
        "SSL_CERT_FILE": str(ca),
    }
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    fields: dict[str, Any] = store_document(running)
    path = f"default/mysqlcluster.{tmp_path.name.replace('_', '-')[:40]}/0a1b2c3d"
    return parse_store(
        {**fields, "ca": ca.read_text(), "path": path, "accessKeyId": "", "secretAccessKey": "", "sessionToken": ""}
    )


def test_collector_exchanges_token_and_claims_path(store: Store, service: TokenService, paths: InstancePaths) -> None:
    check_owner(store, paths)
    assert set(service.roles) == {ROLE}
    assert store.cluster_uid.encode() in open_objects(store, "", paths).read(OWNERSHIP_FILE)
    check_owner(store, paths)
    with pytest.raises(ArchiveError) as found:
        check_owner(replace(store, cluster_uid="another"), paths)
    assert found.value.reason == "PathBelongsToAnotherCluster"


def test_collector_reports_rejected_token(store: Store, service: TokenService, paths: InstancePaths) -> None:
    service.token = "another token"
    with pytest.raises(ArchiveError) as found:
        check_owner(store, paths)
    assert service.refused and not service.roles
    assert "token of the pod" not in str(found.value)
    assert found.value.reason == "CredentialsRejected"
    assert "trusts the ServiceAccount" in found.value.message


@pytest.mark.skipif(ROOT is None, reason="restic is not unpacked: run python -m devcluster servers")
def test_restic_exchanges_token(store: Store, service: TokenService, paths: InstancePaths, tmp_path: Path) -> None:
    assert ROOT is not None
    data = tmp_path / "files"
    data.mkdir()
    (data / "row").write_text("1")
    restic = Restic(store, program=str(ROOT / "usr/bin/restic"), paths=paths)
    restic.open()
    assert restic.backup(data, ["tag"], "host").id in restic.snapshots()
    assert set(service.roles) == {ROLE}


@pytest.fixture
def repository(
    store: Store, running: ObjectStore, paths: InstancePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Repository:
    """pgBackRest without credentials."""
    linked = programs_directory(tmp_path)
    if linked is None:
        pytest.skip("pgBackRest is not unpacked: run devcluster servers")
    monkeypatch.setenv("PATH", str(linked), prepend=":")
    return Repository(replace(store, engine="postgresql"), paths)


def test_pgbackrest_reads_token_file(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It accepts no other host than that of AWS. It reads the token before it connects.
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "missing-token"))
    with pytest.raises(ArchiveError, match="missing-token") as found:
        repository.list("archive/main", 30)
    assert "web-id" not in str(found.value)


def test_pgbackrest_claims_path(
    repository: Repository, store: Store, running: ObjectStore, paths: InstancePaths
) -> None:
    own = replace(
        store,
        engine="postgresql",
        access_key_id=running.credentials.access_key_id,
        secret_access_key=running.credentials.secret_access_key,
    )
    Repository(own, paths).claim(30)
    Repository(own, paths).check_ownership(30)
    with pytest.raises(ArchiveError) as found:
        Repository(replace(own, cluster_uid="another"), paths).check_ownership(30)
    assert found.value.reason == "PathBelongsToAnotherCluster"
