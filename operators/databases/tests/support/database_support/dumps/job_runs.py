"""Jobs of dumps and restores, run on this machine with the mounts of a pod."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from database_support.process_state import preserved_process_state
from devcluster.store import ObjectStore
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_instance import jobs
from steersman_instance.paths import InstancePaths

PASSPHRASE = "cGFzc3BocmFzZSBmb3IgdGVzdHMgb25seSwgMzIgYg=="
PATH = "default/database.orders/0a1b2c3d"
RETENTION = {"window_seconds": 0, "minimum_full_backups": 1}


@dataclass
class DumpJobs:
    """Runs Jobs against a server and an object store.

    Args:
        directory: of this test.
        programs: the client programs of the image, by name.
    """

    directory: Path
    store: ObjectStore | None
    engine: str
    endpoint: ServerEndpoint
    administrator: SqlCredentials
    programs: Mapping[str, Path]
    count: int = field(default=0, init=False)
    last_report: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    """Output of the last Job."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put the client programs first in the search path."""
        directory = self.directory / "bin"
        directory.mkdir()
        for name, program in self.programs.items():
            (directory / name).symlink_to(program)
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")

    def dump(self, database: str, **fields: Any) -> dict[str, Any]:
        """Run the Job of a dump and return its result."""
        backup = {"name": "orders-nightly", "uid": str(uuid.uuid4()), "trigger": "Schedule"}
        return self.run("dump", database, {"backup": backup, **fields})

    def check(
        self, source: str, account: SqlCredentials, declared: Mapping[str, Any] | None = None, *, server: bool = False
    ) -> dict[str, Any]:
        """Run the Job of an import's dry run and return its report.

        Args:
            account: of the source.
            server: True to compare with this server instead of the one of the image.
        """
        fields: dict[str, Any] = {"source": self.address(source), "declared": declared or {}}
        if not server:
            fields["server"] = None
        found = self.run("check-import", "postgres", fields, account=account)
        assert found["ok"], found
        return self.last_report["check"]

    def load(self, database: str, owner: SqlCredentials, **fields: Any) -> dict[str, Any]:
        """Run the Job of a restore and return its result."""
        return self.run("load", database, fields, owner)

    def import_database(
        self,
        source: str,
        target: str,
        owner: SqlCredentials,
        account: SqlCredentials,
        changes: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Run the Job of an import from the same server and return its result.

        Args:
            account: of the source.
            changes: other values of the source's address.
        """
        return self.run("load", target, {"source": {**self.address(source), **(changes or {})}}, owner, account)

    def address(self, database: str) -> dict[str, Any]:
        """Return a database of the server for job.json."""
        return {"host": self.endpoint.host, "port": self.endpoint.port, "database": database, "tls": "Require"}

    def run(
        self,
        program: str,
        database: str,
        fields: Mapping[str, Any],
        owner: SqlCredentials | None = None,
        account: SqlCredentials | None = None,
    ) -> dict[str, Any]:
        """Run a Job in a new pod and return its result."""
        self.count += 1
        pod = self.directory / f"pod-{self.count}"
        paths = self.mount(pod, owner, account)
        document = {"format": 1, "engine": self.engine, "server": self.address(database), **fields}
        (pod / "job.json").write_text(json.dumps(document))
        output = io.StringIO()
        with preserved_process_state(), redirect_stdout(output):
            jobs.main(program, ["--spec", str(pod / "job.json")], paths)
        self.last_report = json.loads(output.getvalue().splitlines()[-1])
        self.require_private(pod / "run")
        return cast("dict[str, Any]", json.loads(paths.termination_log.read_text()))

    def mount(self, pod: Path, owner: SqlCredentials | None, account: SqlCredentials | None = None) -> InstancePaths:
        """Create the files of a pod."""
        for name in ("store", "server", "owner", "import", "run"):
            (pod / name).mkdir(parents=True)
        if self.store is not None:
            (pod / "store" / "store.json").write_text(json.dumps(self.document(self.store)))
        _write(pod / "server", self.administrator)
        if owner is not None:
            _write(pod / "owner", owner)
        if account is not None:
            _write(pod / "import", account)
        return InstancePaths(
            run=pod / "run",
            store_file=pod / "store" / "store.json",
            source_store_file=pod / "store" / "store.json",
            server=pod / "server",
            owner=pod / "owner",
            import_source=pod / "import",
            termination_log=pod / "termination-log",
        )

    def document(self, store: ObjectStore) -> dict[str, Any]:
        """Return the content of the store file."""
        return {
            "format": 1,
            "engine": self.engine,
            "cluster_uid": "0a1b2c3d-0000-0000-0000-000000000000",
            "path": PATH,
            "bucket": store.bucket,
            "endpoint": store.host_endpoint,
            "region": store.region,
            "addressing": "Path",
            "ca": store.ca_file.read_text(),
            "accessKeyId": store.credentials.access_key_id,
            "secretAccessKey": store.credentials.secret_access_key,
            "passphrase": PASSPHRASE,
        }

    @staticmethod
    def require_private(run: Path) -> None:
        """Assert that only the user of the pod can read its files."""
        readable = [str(path) for path in run.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
        assert readable == []


def reasons(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the reasons of results."""
    return [str(each.get("reason", "")) for each in results]


def _write(directory: Path, credentials: SqlCredentials) -> None:
    (directory / "username").write_text(credentials.username)
    (directory / "password").write_text(credentials.password)
