"""Steps of the demo. Each step checks its result."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from applications import LOGINS, WRITER, application, client, from_secret, scripts
from devcluster.errors import NotReady
from devcluster.images import ensure_mysql
from devcluster.operator import DEPLOYMENT, install
from devcluster.operator import NAMESPACE as OPERATORS
from devcluster.progress import Progress
from devcluster.target import Target
from devcluster.target import wait_until as _wait_until

NAMESPACE = "steersman-demo"
SAMPLES = Path(__file__).parent.parent / "config" / "samples"
CLUSTER, USER, MYSQL, GROUP = "shop", "report", "inventory", "stock"
_SHOWN = (f"postgresqlcluster/{CLUSTER}", f"databaseuser/{USER}")
_PARTS = "parts-writer"
_SWITCHOVER = "databases.steersman.dev/switchover=any"


# Each check starts a process, and machines for demos are small.
wait_until = partial(_wait_until, interval=1.0)


class Story:
    """The demo on one cluster."""

    def __init__(self, target: Target, progress: Progress) -> None:
        self._target = target
        self._progress = progress
        self._console = progress.console
        self._samples = ["postgresqlcluster", "databaseuser"]
        self._shown = [*_SHOWN]

    def tell(self) -> None:
        """Run all steps. Raises DevclusterError at the first failure."""
        install(self._target, self._progress)
        # Where Debian's MySQL cannot be had, there is nothing to show of it.
        mysql = not self._target.is_devcluster or ensure_mysql(self._progress) is not None
        if mysql:
            self._samples += ["mysql", "mysqlcluster"]
            self._shown.append(f"database/{MYSQL}")
        self._start_anew()
        self._apply()
        self._watch_until_ready()
        self._start_applications()
        self._rotate()
        if mysql:
            self._use_mysql()
            self._lose_a_primary()
        self._require_logins()
        self._switch_over()
        self._what_next()

    def _start_anew(self) -> None:
        with self._progress.step(f"Create namespace {NAMESPACE}"):
            self._target.kubectl(
                "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s", seconds=200
            )
            self._target.kubectl("create", "namespace", NAMESPACE)

    def _apply(self) -> None:
        for name in self._samples:
            text = (SAMPLES / f"{name}.yaml").read_text()
            self._console.print(f"\n[bold]kubectl apply -f {name}.yaml[/]")
            self._console.print(text, markup=False)
            self._target.apply(text, NAMESPACE)

    def _watch_until_ready(self) -> None:
        begun, shown = time.monotonic(), ""

        def all_ready() -> bool:
            nonlocal shown
            found: list[dict[str, Any]] = self._get(*self._shown)["items"]
            told = [_condition(one, "Ready") for one in found]
            if (state := json.dumps(told)) != shown:
                shown = state
                self._console.print(_table(found, time.monotonic() - begun))
            return all(one.get("status") == "True" for one in told)

        wait_until("cluster, user and database are Ready", all_ready, seconds=300)
        message = _condition(self._get("postgresqlcluster", CLUSTER), "PostInitSQLApplied").get("message", "")
        self._console.print(f"    {message}")

    def _start_applications(self) -> None:
        self._console.print("\n[bold]Two applications, with nothing but their Secrets[/]")
        with self._progress.step("One writes through the pooler, up to 50 times a second; one logs in all the time"):
            pooler = f"deployment/{CLUSTER}-pooler-rw"
            self._kubectl("rollout", "status", pooler, "--timeout=120s", seconds=130)
            # Any image with psycopg would do, and every node can have this one.
            deployed = ("get", "deployment", DEPLOYMENT, f"--namespace={OPERATORS}")
            path = "--output=jsonpath={.spec.template.spec.containers[0].image}"
            image = self._target.kubectl(*deployed, path)
            self._target.apply(json.dumps(scripts()), NAMESPACE)
            host = f"{CLUSTER}-pooler-rw.{NAMESPACE}.svc"
            variables = {"PGDATABASE": "dbname", "PGUSER": "user", "PGPASSWORD": "password"}
            environment = [
                {"name": "STATEMENT", "value": "INSERT INTO visits (who) VALUES (%(who)s)"},
                {"name": "PGHOST", "value": host},
                {"name": "PGSSLMODE", "value": "verify-full"},
                {"name": "PGSSLROOTCERT", "value": "/secret/ca.crt"},
                *from_secret(f"{CLUSTER}-app", variables),
            ]
            self._target.apply(json.dumps(application(WRITER, image, f"{CLUSTER}-app", environment)), NAMESPACE)
            self._target.apply(json.dumps(application(LOGINS, image, f"{USER}-user", [])), NAMESPACE)
            wait_until("rows are written", lambda: self._news(WRITER).get("written", 0) > 0, seconds=90)
            wait_until("somebody logs in", lambda: self._news(LOGINS).get("logins", 0) > 0, seconds=90)

    def _rotate(self) -> None:
        # When it was rotated last stands in the Secret: long ago is due now.
        long_ago = '{"stringData": {"rotated-at": "2000-01-01T00:00:00Z"}}'
        self._console.print(f"\n[bold]The password of {USER} is due for rotation[/]")
        self._console.print(f"kubectl patch secret {USER}-user --type=merge -p '{long_ago}'", markup=False)
        former = self._get("databaseuser", USER).get("status", {}).get("lastRotationTime")
        with self._progress.step("The operator creates another credential, verifies it, and writes it to the Secret"):
            self._kubectl("patch", "secret", f"{USER}-user", "--type=merge", f"--patch={long_ago}")

            def rotated() -> bool:
                moment = self._get("databaseuser", USER).get("status", {}).get("lastRotationTime")
                return moment not in (None, former) and not moment.startswith("2000-")

            wait_until("it is rotated", rotated, seconds=60)

    def _use_mysql(self) -> None:
        self._console.print("\n[bold]Meanwhile, MySQL: a client connects with nothing but the application Secret[/]")
        with self._progress.step(f"{MYSQL}: write a row, read it back"):
            rows = self._mysql(
                "CREATE TABLE IF NOT EXISTS visits (who VARCHAR(40)); INSERT INTO visits VALUES ('a client'); "
                "SELECT CONCAT('row: ', who) FROM visits;"
            )
        self._console.print(f"    {_require('row: a client', rows)}")
        self._console.print(f"[bold]The user of {MYSQL} is dropped manually[/]")
        found = "SELECT user FROM mysql.user WHERE user = 'stock'"
        self._administer_mysql("DROP USER 'stock'@'%'")
        begun = time.monotonic()
        with self._progress.step("The operator detects and reverts it"):
            wait_until("the user is back", lambda: "stock" in self._administer_mysql(found), seconds=45)
            rows = self._mysql("SELECT CONCAT('row: ', who) FROM visits;")
        _require("row: a client", rows)
        self._console.print(f"    back after {time.monotonic() - begun:.0f} s, and the old password still works")

    def _lose_a_primary(self) -> None:
        self._console.print("\n[bold]The MySQL cluster loses its primary, while an application writes[/]")
        with self._progress.step(f"{GROUP} has three members, and one writes up to 50 times a second"):
            wait_until(f"{GROUP} is Ready", lambda: self._is_ready("mysqlcluster", GROUP), seconds=300)
            former = self._get("mysqlcluster", GROUP)["status"]["primary"]
            # A row that was not acknowledged is written once more, under the same number: so each counts once.
            statement = "INSERT IGNORE INTO parts (id, name) VALUES (%(number)s, %(who)s)"
            variables = {"DB_HOST": "host", "DB": "dbname", "DB_USER": "user", "DB_PASSWORD": "password"}
            environment = [{"name": "STATEMENT", "value": statement}, *from_secret(f"{GROUP}-app", variables)]
            image = self._image(f"{former}-0")
            pod = application(_PARTS, image, f"{GROUP}-app", environment, script=WRITER)
            self._target.apply(json.dumps(pod), NAMESPACE)
            wait_until("rows are written", lambda: self._news(_PARTS).get("written", 0) > 50, seconds=90)
        self._console.print(f"kubectl delete pod {former}-0 --force", markup=False)
        with self._progress.step("The others expel it from their group, and one of them becomes the primary"):
            before = self._news(_PARTS)["written"]
            self._kubectl("delete", "pod", f"{former}-0", "--force", "--grace-period=0")
            wait_until("rows are written again", lambda: self._news(_PARTS)["written"] > before + 50, seconds=180)

            def another() -> str | None:
                primary = self._get("mysqlcluster", GROUP).get("status", {}).get("primary")
                return primary if primary not in (None, former) else None

            primary = wait_until("another one is the primary", another, seconds=60)
            self._end(_PARTS)
            news = self._ended(_PARTS)
        question = ("mysql", "--user=root", "--socket=/run/steersman/mysqld.sock", GROUP, "-NBe")
        rows = int(self._kubectl("exec", f"{primary}-0", "--", *question, "SELECT COUNT(*) FROM parts").strip())
        lost = news["written"] - rows
        self._console.print(f"    from {former} to {primary}; {news['written']} rows acknowledged")
        self._console.print(f"    [bold]{lost} rows lost[/], longest wait of a write {news['longest']:.1f} s")
        if lost:
            raise NotReady(f"{news['written']} rows were acknowledged, and {rows} exist")

    def _require_logins(self) -> None:
        def both() -> bool:
            return len(self._news(LOGINS).get("names", ())) > 1

        with self._progress.step(f"Kubernetes brings the Secret to the application that logs in as {USER}"):
            wait_until("it logs in with the new credential", both, seconds=180)
            time.sleep(2.0)
            news = self._news(LOGINS)
        names, failed = " and then ".join(news["names"]), news["failed"]
        self._console.print(f"    {news['logins']} logins, as {names}: [bold]{failed} failed[/]")
        if failed:
            raise NotReady(f"{failed} logins failed, the last with: {news['last']}")
        self._end(LOGINS)

    def _switch_over(self) -> None:
        former = self._get("postgresqlcluster", CLUSTER)["status"]["primary"]
        self._console.print("\n[bold]A switchover, while the application writes[/]")
        self._console.print(f"kubectl annotate pg {CLUSTER} {_SWITCHOVER}", markup=False)
        before = self._news(WRITER)
        with self._progress.step("Switchover"):
            self._kubectl("annotate", "pg", CLUSTER, _SWITCHOVER)

            def over() -> str | None:
                found = self._get("postgresqlcluster", CLUSTER)
                status = found.get("status", {})
                ready = _condition(found, "Ready").get("status") == "True"
                return status["primary"] if ready and status.get("primary") not in (None, former) else None

            primary = wait_until("another one is the primary", over, seconds=120)
            wait_until(
                "rows are written again", lambda: self._news(WRITER)["written"] > before["written"] + 50, seconds=60
            )
            self._end(WRITER)
            news = self._ended(WRITER)
        self._console.print(f"    from {former} to {primary}; {news['written']} rows written")
        self._console.print(f"    [bold]{news['errors']} errors[/], longest wait of a write {news['longest']:.1f} s")
        if news["errors"]:
            raise NotReady(f"{news['errors']} writes failed, the last with: {news['last']}")
        rows = int(self._kubectl("exec", f"{primary}-0", "--", *_COUNT).strip())
        if rows != news["written"]:
            raise NotReady(f"{news['written']} rows were acknowledged, and {rows} exist")

    def _what_next(self) -> None:
        lines = [
            f"kubectl get pg,my,db,dbu -n {NAMESPACE}",
            f"kubectl describe pg {CLUSTER} -n {NAMESPACE}",
            f"kubectl get secret {CLUSTER}-app -n {NAMESPACE} -o yaml",
            f"kubectl delete service {CLUSTER}-rw -n {NAMESPACE}   # and watch it come back",
        ]
        if self._target.kubeconfig is not None:
            folder = Path(self._target.kubectl_path).parent
            lines.insert(0, f"export KUBECONFIG={self._target.kubeconfig} PATH={folder}:$PATH")
        self._console.print("\n[bold green]All steps succeeded.[/] What to try next:\n")
        self._console.print("\n".join(f"  {line}" for line in lines), markup=False, soft_wrap=True)
        if self._target.is_devcluster:
            self._console.print("\n  make cluster-down   removes the cluster", markup=False)
        else:
            self._console.print(f"\n  kubectl delete namespace {NAMESPACE}   removes the databases", markup=False)

    def _kubectl(self, verb: str, *arguments: str, seconds: float = 60) -> str:
        return self._target.kubectl(verb, f"--namespace={NAMESPACE}", *arguments, seconds=seconds)

    def _get(self, *what: str) -> dict[str, Any]:
        return self._target.get(*what, f"--namespace={NAMESPACE}") or {}

    def _is_ready(self, kind: str, name: str) -> bool:
        return _condition(self._get(kind, name), "Ready").get("status") == "True"

    def _image(self, pod: str) -> str:
        """Image of the pod's server, which contains a client, too."""
        return self._kubectl("get", "pod", pod, "--output=jsonpath={.spec.containers[0].image}")

    def _news(self, name: str) -> dict[str, Any]:
        """Last report of an application, empty before the first."""
        done = self._target.try_kubectl("logs", name, f"--namespace={NAMESPACE}", "--tail=1")
        line = done.stdout.strip()
        return json.loads(line) if done.returncode == 0 and line.startswith("{") else {}

    def _end(self, name: str) -> None:
        """Stop an application after its last report."""
        self._kubectl("exec", name, "--", "sh", "-c", "kill -TERM 1")

    def _ended(self, name: str) -> dict[str, Any]:
        wait_until(
            f"{name} ends", lambda: self._get("pod", name).get("status", {}).get("phase") == "Succeeded", seconds=60
        )
        return self._news(name)

    def _administer_mysql(self, statement: str) -> str:
        command = ("mysql", "--user=root", "--socket=/run/steersman/mysqld.sock", "-N", "-e", statement)
        return self._kubectl("exec", f"{MYSQL}-0-0", "--", *command)

    def _mysql(self, statements: str) -> str:
        """Output of a client that has nothing but the Secret."""
        name = "client"
        image = self._image(f"{MYSQL}-0-0")
        self._kubectl("delete", "pod", name, "--ignore-not-found")
        self._target.apply(json.dumps(client(name, image, f"{MYSQL}-app", statements)), NAMESPACE)

        def finished() -> str | None:
            phase = self._get("pod", name).get("status", {}).get("phase")
            return phase if phase in ("Succeeded", "Failed") else None

        phase = wait_until(f"pod {name} ends", finished, seconds=90)
        output = self._kubectl("logs", name)
        if phase == "Failed":
            raise NotReady(f"the client of {MYSQL} failed: {output.strip()}")
        return output


_COUNT = ("psql", "-h", "/run/steersman", "-U", "postgres", "-d", CLUSTER, "-AtXc", "SELECT count(*) FROM visits")


def _condition(found: Mapping[str, Any], type_: str) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = found.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == type_), dict[str, Any]())


def _table(found: list[dict[str, Any]], seconds: float) -> Table:
    title = f"kubectl get pg,dbu,db   ({seconds:.0f} s)"
    table = Table("KIND", "NAME", "READY", "REASON", "MESSAGE", title=title, box=None)
    for one in found:
        ready = _condition(one, "Ready")
        told = (ready.get(key, "") for key in ("status", "reason", "message"))
        table.add_row(one["kind"], one["metadata"]["name"], *told)
    return table


def _require(expected: str, output: str) -> str:
    """Return the line ``expected``, which must be in ``output``."""
    if expected not in output.splitlines():
        raise NotReady(f"expected {expected!r}, got {output.strip()!r}")
    return expected
