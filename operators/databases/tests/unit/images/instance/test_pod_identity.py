"""Workload identity in the programs of a pod."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from steersman_databases.features.backup_store.layout import ArchiveIdentity
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.archive.ownership import claims_path, ownership_content
from steersman_instance.archive.pgbackrest import render_configuration
from steersman_instance.archive.pod_identity import require_gcp_account, require_pod_identity
from steersman_instance.archive.store_file import Store, parse_store
from steersman_instance.backup.restic import restic_environment
from steersman_instance.paths import InstancePaths

ACCOUNT = "backups@project-1.iam.gserviceaccount.com"
FIELDS: dict[str, Any] = {
    "format": 1,
    "engine": "mysql",
    "cluster_uid": "b1a2",
    "path": "shop/mysqlcluster.orders/b1a2c3d4",
    "bucket": "backups",
    "account": "acc",
    "passphrase": "word",
    "serviceAccountAnnotations": {},
}
ENVIRONMENTS = {
    "s3": {"AWS_ROLE_ARN": "arn", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token"},
    "azure": {"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_FEDERATED_TOKEN_FILE": "/token"},
    "gcs": {},
}


def store_in(service: str, **fields: Any) -> Store:
    return parse_store({**FIELDS, "service": service, **fields})


@pytest.fixture
def paths(tmp_path: Path) -> InstancePaths:
    return InstancePaths(volume=tmp_path / "data", run=tmp_path / "run", store_file=tmp_path / "store.json")


@pytest.mark.parametrize("service", ["s3", "azure"])
def test_pod_without_token_is_refused(service: str) -> None:
    complete = ENVIRONMENTS[service]
    require_pod_identity(store_in(service), complete)
    for name in complete:
        with pytest.raises(ArchiveError, match="no token for the workload identity") as found:
            require_pod_identity(store_in(service), {**complete, name: ""})
        assert found.value.reason == "InvalidStore"


def test_credentials_need_no_token() -> None:
    require_pod_identity(store_in("s3", accessKeyId="id", secretAccessKey="hush"), {})
    require_pod_identity(store_in("gcs"), {})


class _Metadata(BaseHTTPRequestHandler):
    account: ClassVar[str] = ""

    def do_GET(self) -> None:
        found = self.headers.get("Metadata-Flavor") == "Google" and self.path.endswith("/default/email")
        self.send_response(200 if found else 403)
        self.end_headers()
        self.wfile.write(self.account.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def metadata() -> Generator[dict[str, str]]:
    """Run a metadata server. Yields the variable that names it."""
    with HTTPServer(("127.0.0.1", 0), _Metadata) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield {"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"}
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("declared", "returned", "accepted"),
    [
        (ACCOUNT, ACCOUNT, True),
        ("", "project-1.svc.id.goog", True),
        (ACCOUNT, "1234-compute@developer.gserviceaccount.com", False),
        ("", "1234-compute@developer.gserviceaccount.com", False),
        ("", "", False),
    ],
)
def test_account_of_node_is_refused(
    metadata: dict[str, str], monkeypatch: pytest.MonkeyPatch, declared: str, returned: str, accepted: bool
) -> None:
    monkeypatch.setattr(_Metadata, "account", returned)
    store = store_in("gcs", serviceAccountAnnotations={"iam.gke.io/gcp-service-account": declared})
    if accepted:
        require_gcp_account(store, metadata)
        return
    with pytest.raises(ArchiveError, match="does not return the workload identity") as found:
        require_gcp_account(store, metadata)
    assert found.value.reason == "CredentialsRejected"


def test_missing_metadata_server_is_reported() -> None:
    # Nothing can listen at port 0.
    with pytest.raises(ArchiveError, match="does not respond") as found:
        require_gcp_account(store_in("gcs"), {"GCE_METADATA_HOST": "127.0.0.1:0"})
    assert found.value.reason == "StoreUnreachable"


def test_only_own_path_is_claimed() -> None:
    store = store_in("s3")
    assert claims_path(store)
    assert not claims_path(store_in("s3", cluster_uid=""))
    assert not claims_path(store_in("s3", accessKeyId="id", secretAccessKey="hush"))
    identity = ArchiveIdentity(engine="mysql", cluster_uid="b1a2", key_fingerprint=store.key_fingerprint)
    assert ownership_content(store) == identity.to_json()


@pytest.mark.parametrize(
    ("service", "repository"),
    [
        ("s3", "s3:https://s3.us-east-1.amazonaws.com/backups/shop/mysqlcluster.orders/b1a2c3d4/mysql/base"),
        ("gcs", "gs:backups:/shop/mysqlcluster.orders/b1a2c3d4/mysql/base"),
        ("azure", "azure:backups:/shop/mysqlcluster.orders/b1a2c3d4/mysql/base"),
    ],
)
def test_restic_keeps_only_variables_of_identity(
    monkeypatch: pytest.MonkeyPatch, paths: InstancePaths, service: str, repository: str
) -> None:
    foreign = {"AWS_PROFILE": "x", "AZURE_CLIENT_SECRET": "x", "GOOGLE_ACCESS_TOKEN": "x", "RESTIC_PASSWORD": "x"}
    for name, value in {**foreign, **ENVIRONMENTS[service]}.items():
        monkeypatch.setenv(name, value)
    options, environment = restic_environment(store_in(service), "mysql/base", None, paths)
    assert f"--repo={repository}" in options
    assert ENVIRONMENTS[service].items() <= environment.items()
    assert not foreign.keys() & environment.keys()


def test_restic_reads_key_of_gcs_from_file(paths: InstancePaths) -> None:
    key = json.dumps({"type": "service_account", "private_key": "hush"})
    options, environment = restic_environment(store_in("gcs", secretAccessKey=key), "mysql/base", None, paths)
    file = Path(environment["GOOGLE_APPLICATION_CREDENTIALS"])
    assert file.read_text() == key and file.stat().st_mode & 0o777 == 0o600
    assert "hush" not in str((options, environment))


def test_restic_gets_no_key_of_azure(paths: InstancePaths) -> None:
    with pytest.raises(ArchiveError, match="workload identity of Azure"):
        restic_environment(store_in("azure", secretAccessKey="hush"), "mysql/base", None, paths)


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({"service": "s3"}, {"repo1-s3-key-type=web-id", "repo1-s3-uri-style=host"}),
        ({"service": "gcs"}, {"repo1-gcs-key-type=auto", "repo1-gcs-bucket=backups"}),
        ({"service": "gcs", "secretAccessKey": "{}"}, {"repo1-gcs-key-type=service"}),
        ({"service": "azure", "secretAccessKey": "aGk="}, {"repo1-azure-key-type=shared", "repo1-azure-key=aGk="}),
    ],
)
def test_pgbackrest_has_key_type(paths: InstancePaths, fields: dict[str, str], lines: set[str]) -> None:
    rendered = render_configuration(parse_store({**FIELDS, "engine": "postgresql", **fields}), paths)
    assert lines <= set(rendered.splitlines())
