"""What the demo shows, step by step; each step checks that it came true."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from devcluster.errors import NotReady
from devcluster.operator import install
from devcluster.progress import Progress
from devcluster.target import Target, wait_until

NAMESPACE = "steersman-demo"
SAMPLES = Path(__file__).parent.parent / "config" / "samples"
POSTGRESQL, MYSQL = "orders", "inventory"


class Story:
    """The demo on one cluster."""

    def __init__(self, target: Target, progress: Progress) -> None:
        self._target = target
        self._progress = progress
        self._console = progress.console

    def tell(self) -> None:
        """Runs all steps. Raises DevclusterError at the first that does not come true."""
        install(self._target, self._progress)
        self._start_anew()
        self._apply_databases()
        self._watch_until_ready()
        self._write_and_read()
        self._heal()
        self._delete_and_adopt()
        self._what_next()

    def _start_anew(self) -> None:
        with self._progress.step(f"Create namespace {NAMESPACE}"):
            self._target.kubectl(
                "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s", seconds=200
            )
            self._target.kubectl("create", "namespace", NAMESPACE)

    def _apply_databases(self) -> None:
        for engine in ("postgresql", "mysql"):
            text = (SAMPLES / f"{engine}.yaml").read_text()
            self._console.print(f"\n[bold]kubectl apply -f {engine}.yaml[/]\n{text}", markup=True)
            self._target.apply(text, NAMESPACE)

    def _watch_until_ready(self) -> None:
        begun, shown = time.monotonic(), ""

        def all_ready() -> bool:
            nonlocal shown
            databases = self._databases()
            state = json.dumps([d.get("status") for d in databases])
            if state != shown:
                shown = state
                self._console.print(_table(databases, time.monotonic() - begun))
            return all(_phase(d) == "Ready" for d in databases)

        wait_until("both databases are Ready", all_ready, seconds=240)

    def _write_and_read(self) -> None:
        self._console.print("\n[bold]A client connects with nothing but the application Secret[/]")
        for name, client in ((POSTGRESQL, _postgresql_client), (MYSQL, _mysql_client)):
            with self._progress.step(f"{name}: write a row, read it back"):
                rows = self._run_client(
                    name,
                    client,
                    "CREATE TABLE IF NOT EXISTS visits (who VARCHAR(40)); INSERT INTO visits VALUES ('a stranger'); "
                    "SELECT CONCAT('row: ', who) FROM visits;",
                )
            self._console.print(f"    {_require('row: a stranger', rows)}")

    def _heal(self) -> None:
        self._console.print(f"\n[bold]Somebody drops the user of {MYSQL} by hand[/]")
        self._administer_mysql("DROP USER 'stock'@'%'")
        if "stock" in self._administer_mysql("SELECT user FROM mysql.user WHERE user = 'stock'"):
            raise NotReady("the user is still there after DROP USER")
        begun = time.monotonic()
        with self._progress.step("The operator notices and heals it"):
            wait_until(
                "the user is back",
                lambda: "stock" in self._administer_mysql("SELECT user FROM mysql.user WHERE user = 'stock'"),
                seconds=45,
            )
            rows = self._run_client(MYSQL, _mysql_client, "SELECT CONCAT('row: ', who) FROM visits;")
        _require("row: a stranger", rows)
        self._console.print(f"    back after {time.monotonic() - begun:.0f} s, and the old password still works")

    def _delete_and_adopt(self) -> None:
        self._console.print(f"\n[bold]kubectl delete db {POSTGRESQL}[/]   (deletionPolicy: Retain is the default)")
        with self._progress.step("Delete it; its volume and Secrets stay"):
            self._target.kubectl("delete", "database", POSTGRESQL, f"--namespace={NAMESPACE}", seconds=150)
            kept = self._target.kubectl(
                "get",
                "pvc,secret",
                f"--namespace={NAMESPACE}",
                f"--selector=app.kubernetes.io/instance={POSTGRESQL}",
                "--output=name",
            ).split()
        expected = {
            f"persistentvolumeclaim/data-{POSTGRESQL}-0",
            f"secret/{POSTGRESQL}-admin",
            f"secret/{POSTGRESQL}-app",
        }
        if set(kept) != expected:
            raise NotReady(f"expected {sorted(expected)} to be kept, found {kept}")
        self._console.print(f"    kept: {', '.join(sorted(kept))}")
        with self._progress.step("Apply the same YAML again; it adopts them"):
            self._target.apply((SAMPLES / "postgresql.yaml").read_text(), NAMESPACE)
            wait_until(
                f"{POSTGRESQL} is Ready again",
                lambda: all(_phase(d) == "Ready" for d in self._databases()),
                seconds=120,
            )
            rows = self._run_client(POSTGRESQL, _postgresql_client, "SELECT CONCAT('row: ', who) FROM visits;")
        self._console.print(f"    {_require('row: a stranger', rows)}  (the row from before)")

    def _what_next(self) -> None:
        lines = [f"kubectl get db -n {NAMESPACE}", f"kubectl describe db {MYSQL} -n {NAMESPACE}"]
        lines.append(f"kubectl get secret {MYSQL}-app -n {NAMESPACE} -o yaml")
        lines.append(f"kubectl delete service {MYSQL}-primary -n {NAMESPACE}   # and watch it come back")
        if self._target.kubeconfig is not None:
            folder = Path(self._target.kubectl_path).parent
            lines.insert(0, f"export KUBECONFIG={self._target.kubeconfig} PATH={folder}:$PATH")
        self._console.print("\n[bold green]All of it came true.[/] What to try next:\n")
        self._console.print("\n".join(f"  {line}" for line in lines), markup=False, soft_wrap=True)
        if self._target.is_devcluster:
            self._console.print("\n  make cluster-down   removes the cluster", markup=False)
        else:
            self._console.print(f"\n  kubectl delete namespace {NAMESPACE}   removes the databases", markup=False)

    def _databases(self) -> list[dict[str, Any]]:
        found = self._target.get("databases", f"--namespace={NAMESPACE}")
        return found["items"] if found else []

    def _administer_mysql(self, statement: str) -> str:
        script = 'MYSQL_PWD="$(cat /etc/steersman/admin/password)" exec mysql --host=127.0.0.1 -u "$1" -N -e "$2"'
        return self._target.kubectl(
            "exec",
            f"--namespace={NAMESPACE}",
            f"{MYSQL}-0",
            "--",
            "sh",
            "-c",
            script,
            "sh",
            "steersman_admin",
            statement,
        )

    def _run_client(self, name: str, client: Callable[[str], dict[str, Any]], statements: str) -> str:
        pod_name = f"client-{name}"
        image = self._target.kubectl(
            "get", "pod", f"{name}-0", f"--namespace={NAMESPACE}", "--output=jsonpath={.spec.containers[0].image}"
        )
        manifest = _client_pod(pod_name, image, client(name), statements)
        self._target.kubectl("delete", "pod", pod_name, f"--namespace={NAMESPACE}", "--ignore-not-found")
        self._target.apply(json.dumps(manifest), NAMESPACE)

        def finished() -> str | None:
            pod = self._target.get("pod", pod_name, f"--namespace={NAMESPACE}")
            phase = pod["status"].get("phase") if pod else None
            return phase if phase in ("Succeeded", "Failed") else None

        phase = wait_until(f"pod {pod_name} ends", finished, seconds=90)
        output = self._target.kubectl("logs", pod_name, f"--namespace={NAMESPACE}")
        if phase == "Failed":
            raise NotReady(f"the client of {name} failed: {output.strip()}")
        return output


def _postgresql_client(name: str) -> dict[str, Any]:
    variables = {
        "PGHOST": "host",
        "PGPORT": "port",
        "PGDATABASE": "dbname",
        "PGUSER": "user",
        "PGPASSWORD": "password",
    }
    return {
        "command": ["sh", "-c", 'exec psql -v ON_ERROR_STOP=1 --no-align --tuples-only -c "$STATEMENTS"'],
        "env": _from_secret(f"{name}-app", variables),
    }


def _mysql_client(name: str) -> dict[str, Any]:
    variables = {"DB_HOST": "host", "DB_PORT": "port", "DB": "dbname", "DB_USER": "user", "MYSQL_PWD": "password"}
    script = 'exec mysql -h "$DB_HOST" -P "$DB_PORT" -u "$DB_USER" -N -e "$STATEMENTS" "$DB"'
    return {"command": ["sh", "-c", script], "env": _from_secret(f"{name}-app", variables)}


def _from_secret(secret: str, variables: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for variable, key in variables.items()
    ]


def _client_pod(name: str, image: str, container: dict[str, Any], statements: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "client",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": container["command"],
                    "env": [*container["env"], {"name": "STATEMENTS", "value": statements}],
                }
            ],
        },
    }


def _phase(database: dict[str, Any]) -> str:
    return database.get("status", {}).get("phase", "")


def _table(databases: list[dict[str, Any]], seconds: float) -> Table:
    table = Table(
        "NAME", "ENGINE", "VERSION", "PHASE", "MESSAGE", title=f"kubectl get db   ({seconds:.0f} s)", box=None
    )
    for database in databases:
        spec, status = database["spec"], database.get("status", {})
        message = next((c["message"] for c in status.get("conditions", []) if c["type"] == "Ready"), "")
        table.add_row(database["metadata"]["name"], spec["engine"], spec["version"], _phase(database), message)
    return table


def _require(expected: str, output: str) -> str:
    """The line ``expected``, which must be in ``output``."""
    if expected not in output.splitlines():
        raise NotReady(f"expected {expected!r}, got {output.strip()!r}")
    return expected
