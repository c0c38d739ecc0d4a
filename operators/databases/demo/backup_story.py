"""Steps of ``make demo-backup``. Each step checks its result."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from devcluster.errors import DevclusterError, NotReady
from devcluster.images import ensure_mysql
from devcluster.operator import install
from devcluster.progress import Progress
from devcluster.store import cluster_store, manifests
from devcluster.target import Target
from devcluster.target import wait_until as _wait_until

NAMESPACE = "steersman-demo-backup"
_BACKUP = {
    "storeRef": {"name": manifests.STORE},
    "archive": {"interval": "5s"},
    "schedules": [{"name": "nightly", "schedule": "30 2 * * *"}],
}
_ROWS = 1000
# Each probe is a process, and machines that try this are small.
wait_until = partial(_wait_until, interval=1.0)


@dataclass(frozen=True)
class Engine:
    """A database engine in the demo.

    Args:
        client: command of the administrator's client in a pod, without the statement.
        rows: statement that inserts 1,000 rows into the table ``orders``.
        count: statement that counts them.
    """

    kind: str
    name: str
    version: str
    size: str
    client: Sequence[str]
    rows: str
    count: str

    @property
    def manifest(self) -> dict[str, Any]:
        """The cluster with one instance, a schedule of backups, and an archive."""
        return {
            "apiVersion": "databases.steersman.dev/v1alpha1",
            "kind": self.kind,
            "metadata": {"name": self.name},
            "spec": {
                "instances": 1,
                "version": self.version,
                "storage": {"size": self.size},
                "deletionPolicy": "Delete",
                "backup": _BACKUP,
            },
        }


POSTGRESQL = Engine(
    kind="PostgreSQLCluster",
    name="shop",
    version="17",
    size="512Mi",
    client=("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-c"),
    rows="INSERT INTO orders SELECT generate_series(1, 1000)",
    count="SELECT COUNT(*) FROM orders",
)
MYSQL = Engine(
    kind="MySQLCluster",
    name="stock",
    version="9.7",
    size="1Gi",
    client=(
        "mysql",
        "--no-defaults",
        "--user=root",
        "--socket=/run/steersman/mysqld.sock",
        "--batch",
        "--skip-column-names",
        "-e",
    ),
    rows=(
        "INSERT INTO demo.orders WITH RECURSIVE numbers (n) AS "
        "(SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000) SELECT n FROM numbers"
    ),
    count="SELECT COUNT(*) FROM demo.orders",
)


class BackupStory:
    """Drops a table on each engine, and recovers it into a clone."""

    def __init__(self, target: Target, progress: Progress) -> None:
        self._target = target
        self._progress = progress
        self._console = progress.console

    def tell(self) -> None:
        """Run all steps. Raises DevclusterError at the first that fails."""
        if not self._target.is_devcluster:
            raise DevclusterError("make demo-backup needs the object store of the devcluster: unset CLUSTER")
        install(self._target, self._progress)
        engines = [POSTGRESQL, *([] if ensure_mysql(self._progress) is None else [MYSQL])]
        self._create_namespace()
        self._start_store()
        for engine in engines:
            text = yaml.safe_dump(engine.manifest, sort_keys=False)
            self._console.print(f"\n[bold]kubectl apply -f {engine.name}.yaml[/]")
            self._console.print(text, markup=False)
            self._target.apply(text, NAMESPACE)
        for engine in engines:
            with self._progress.step(f"{engine.name}: create it, archive, and take the first full backup"):
                self._wait_condition(engine, engine.name, "Ready", "True", 300)
                self._wait_condition(engine, engine.name, "BackedUp", "True", 300)
        self._console.print("\n[bold]kubectl steersman backups[/]")
        self._console.print(self._plugin("backups"), markup=False)
        moments = {engine.name: self._drop_table(engine) for engine in engines}
        for engine in engines:
            self._recover(engine, moments[engine.name])
        self._what_next(engines)

    def _create_namespace(self) -> None:
        with self._progress.step(f"Create namespace {NAMESPACE}"):
            delete = ("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s")
            self._target.kubectl(*delete, seconds=200)
            self._target.kubectl("create", "namespace", NAMESPACE)

    def _start_store(self) -> None:
        store = cluster_store.start(self._progress)
        with self._progress.step("Declare the object store, an S3 server on this machine, as a BackupStore"):
            self._target.apply(manifests.render(store, NAMESPACE), NAMESPACE)

            def reachable() -> bool:
                return _condition(self._get("backupstore", manifests.STORE), "Ready").get("status") == "True"

            wait_until("the object store is reachable", reachable, seconds=120)

    def _drop_table(self, engine: Engine) -> datetime:
        """Insert rows, drop their table, and return the moment between."""
        table = "demo.orders" if engine is MYSQL else "orders"
        if engine is MYSQL:
            self._sql(engine, engine.name, "CREATE DATABASE demo")
        self._sql(engine, engine.name, f"CREATE TABLE {table} (number INT PRIMARY KEY)")
        self._sql(engine, engine.name, engine.rows)
        moment = datetime.now(UTC)
        self._console.print(f"\n[bold]{engine.name}: {_ROWS} rows are written, then:[/] DROP TABLE {table}")
        self._sql(engine, engine.name, f"DROP TABLE {table}")
        with self._progress.step("Wait until the archive in the object store has the moment before"):

            def covered() -> bool:
                backup = self._get(engine.kind.lower(), engine.name).get("status", {}).get("backup", {})
                last = backup.get("lastRecoveryPoint")
                return last is not None and datetime.fromisoformat(last) > moment

            wait_until("the archive has it", covered, seconds=120)
        return moment

    def _recover(self, engine: Engine, moment: datetime) -> None:
        clone, begun = f"{engine.name}-before", time.monotonic()
        command = ("clone", engine.name, clone, "--at", f"{moment.isoformat()}", "--create")
        self._console.print(f"\n[bold]kubectl steersman {' '.join(command)}[/]")
        with self._progress.step(f"{clone}: recover to the moment before the table was dropped"):
            self._plugin(*command)
            self._wait_condition(engine, clone, "Ready", "True", 400)
            count = self._sql(engine, clone, engine.count)
        self._console.print(f"    [bold]{count} rows are back[/] after {time.monotonic() - begun:.0f} s")
        if count != str(_ROWS):
            raise NotReady(f"{_ROWS} rows were written before the table was dropped, and the clone has {count}")

    def _what_next(self, engines: Sequence[Engine]) -> None:
        lines = [
            f"kubectl steersman backups -n {NAMESPACE}",
            f"kubectl steersman backup {engines[0].name} -n {NAMESPACE}",
            f"kubectl delete pg {POSTGRESQL.name} -n {NAMESPACE}   # a final backup first, then its volumes",
        ]
        folder = Path(self._target.kubectl_path).parent
        lines.insert(0, f"export KUBECONFIG={self._target.kubeconfig} PATH={folder}:$PATH")
        self._console.print("\n[bold green]Each table was recovered.[/] What to try next:\n")
        self._console.print("\n".join(f"  {line}" for line in lines), markup=False, soft_wrap=True)
        self._console.print("\n  make cluster-down   removes the cluster", markup=False)

    def _wait_condition(self, engine: Engine, name: str, kind: str, status: str, seconds: float) -> None:
        def holds() -> bool:
            return _condition(self._get(engine.kind.lower(), name), kind).get("status") == status

        try:
            wait_until(f"{name}: {kind} is {status}", holds, seconds=seconds)
        except NotReady as error:
            message = _condition(self._get(engine.kind.lower(), name), kind).get("message", "")
            raise NotReady(f"{error}: {message}") from error

    def _sql(self, engine: Engine, cluster: str, statement: str) -> str:
        command = ("exec", f"{cluster}-0-0", "--container=server", "--", *engine.client, statement)
        return self._target.kubectl(f"--namespace={NAMESPACE}", *command, seconds=60).strip()

    def _get(self, *what: str) -> dict[str, Any]:
        return self._target.get(*what, f"--namespace={NAMESPACE}") or {}

    def _plugin(self, command: str, *arguments: str) -> str:
        """Run the plugin, as ``kubectl steersman`` does."""
        program = "from steersman_databases.kubectl.app import main; main()"
        words = [sys.executable, "-c", program, command, "--namespace", NAMESPACE, *arguments]
        environment = {**os.environ, "KUBECONFIG": str(self._target.kubeconfig), "COLUMNS": "160"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise DevclusterError(f"kubectl steersman {command} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout.rstrip()


def _condition(found: Mapping[str, Any], kind: str) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = found.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), dict[str, Any]())
