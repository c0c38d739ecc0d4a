"""A cluster as its user sees it: YAML in, kubectl, Services and SQL out."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from benchmarks.databases import write_gaps, writer

from database_support.e2e.database import CLIENT
from database_support.e2e.engines import POSTGRESQL, EngineCommands
from database_support.e2e.events import expecting_events
from devcluster.errors import CommandFailed
from devcluster.target import Target, wait_until

API = "databases.steersman.dev/v1alpha1"
RATE = 50.0
"""Rows a second that a writing client asks for."""
SMALL_SPEC = POSTGRESQL.small

_READER = Path(__file__).with_name("reader.py")
_STRINGS = {"URI": "uri", "JDBC_URI": "jdbc-uri"}
"""Variables of a client, by what they are in its Secret."""

T = TypeVar("T")


@dataclass
class NamespaceClient:
    """What somebody does in one namespace."""

    target: Target
    namespace: str

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = 60) -> str:
        return self.target.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin, seconds=seconds)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object; empty where there is none."""
        return self.target.get(kind, name, f"--namespace={self.namespace}") or {}

    def all(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        found = self.target.get(kind, f"--namespace={self.namespace}", *arguments)
        return (found or {"items": []})["items"]

    def names(self, kinds: str, *arguments: str) -> set[str]:
        """What is there, as ``kind/name``."""
        return set(self.kubectl("get", kinds, "--output=name", *arguments).split())

    def apply(self, kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> None:
        """``kubectl apply`` of an object of ours. Raises CommandFailed with the refusal."""
        manifest = {"apiVersion": API, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
        self.target.apply(yaml.safe_dump(manifest), self.namespace)

    def create(self, *objects: Mapping[str, Any]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(listed))

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        self.kubectl("patch", kind, name, "--type=merge", f"--patch={json.dumps(change)}")

    def secret(self, name: str) -> dict[str, str]:
        """The Secret's entries, decoded; empty where there is none."""
        found: dict[str, str] = self.get("secret", name).get("data") or {}
        return {key: base64.b64decode(value).decode() for key, value in found.items()}

    def log_in(self, pod: str, login: Mapping[str, str], statement: str, engine: str = "postgresql") -> str:
        """What a server answers to who has nothing but the entries of a Secret. Raises CommandFailed with its words.

        Args:
            pod: where the client runs, beside some server.
        """
        values = [login[key] for key in ("host", "port", "user", "dbname", "password")]
        command = ("exec", pod, "--container=server", "--", "sh", "-c", CLIENT[engine], "sh", *values, statement)
        return self.kubectl(*command, seconds=30).strip()

    def wait_for_columns(self, kind: str, name: str, *words: str) -> None:
        """Waits until ``kubectl get`` has these words in its line."""

        def shown() -> bool:
            line = self.kubectl("get", kind, name, "--no-headers")
            return all(word in line for word in words)

        self.until(f"kubectl get {kind} {name} shows {words}", shown, 120, about=(kind, name))

    def condition(self, kind: str, name: str, what: str = "Ready") -> dict[str, Any]:
        """Empty before there is one."""
        conditions: list[dict[str, Any]] = self.get(kind, name).get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == what), dict[str, Any]())

    def wait_reason(
        self, kind: str, name: str, reason: str, what: str = "Ready", seconds: float = 90
    ) -> dict[str, Any]:
        """Waits for a condition to have a reason, and returns it."""

        def found() -> dict[str, Any] | None:
            condition = self.condition(kind, name, what)
            return condition if condition.get("reason") == reason else None

        return self.until(f"{kind} {name}: {what} is {reason}", found, seconds, about=(kind, name))

    def wait_current(self, kind: str, name: str, reason: str, what: str = "Ready", seconds: float = 90) -> None:
        """As `wait_reason`, said of what is declared at present."""
        generation = self.get(kind, name)["metadata"]["generation"]

        def found() -> bool:
            condition = self.condition(kind, name, what)
            return (condition.get("reason"), condition.get("observedGeneration")) == (reason, generation)

        self.until(f"{kind} {name}: {what} is {reason} by now", found, seconds, about=(kind, name))

    def expecting_events(self, name: str, *reasons: tuple[str, str] | str) -> AbstractContextManager[None]:
        """Each of these is told anew of an object, as `told_events` has it."""
        return expecting_events(lambda: self.all("events", f"--field-selector=involvedObject.name={name}"), *reasons)

    def events(self, name: str, reason: str) -> list[str]:
        """What was said of an object for a reason."""
        chosen = f"--field-selector=involvedObject.name={name},reason={reason}"
        return [e["message"] for e in self.all("events", chosen)]

    def until(
        self,
        what: str,
        probe: Callable[[], T | None],
        seconds: float = 180,
        about: tuple[str, str] | None = None,
    ) -> T:
        """What ``probe`` gives once it is true; refusals of kubectl and of servers count as not yet."""
        last: list[CommandFailed] = []

        def attempt() -> T | None:
            try:
                return probe() or None
            except CommandFailed as error:
                last[:] = [error]
                return None

        try:
            # Each look is a process: more of them take from the servers what they are waited for.
            return wait_until(what, attempt, seconds=seconds, interval=1)
        except Exception as error:
            for each in last:
                error.add_note(f"last refusal: {each}")
            if about is not None:
                error.add_note(json.dumps(self.get(*about).get("status"), indent=1))
            raise


@dataclass
class ClusterUnderTest:
    """One cluster, of PostgreSQL unless another engine is given, with a spec of that one."""

    namespace_client: NamespaceClient
    name: str = "orders"
    spec: dict[str, Any] = field(default_factory=lambda: dict(SMALL_SPEC))
    engine: EngineCommands = POSTGRESQL

    def apply(self, **spec: Any) -> None:
        """``kubectl apply``; ``spec`` adds or replaces fields by their wire names, None takes one out."""
        fields = {**self.spec, **spec}
        self.spec = {key: value for key, value in fields.items() if value is not None}
        self.namespace_client.apply(self.engine.kind, self.name, self.spec)

    @property
    def found(self) -> dict[str, Any]:
        return self.namespace_client.get(self.kind, self.name)

    @property
    def kind(self) -> str:
        """As kubectl takes it."""
        return self.engine.kind.lower()

    def reference(self, **more: Any) -> dict[str, Any]:
        """The part of a spec that puts something on this cluster, and more."""
        return {"clusterRef": {"kind": self.engine.kind, "name": self.name}, **more}

    @property
    def status(self) -> dict[str, Any]:
        return self.found.get("status", {})

    @property
    def primary(self) -> str:
        return self.status.get("primary", "")

    @property
    def leader(self) -> str:
        """The instance that leads, as the members say: it is known with the operator away too."""
        store = self.namespace_client.get("configmap", f"{self.name}-{self.engine.store}")
        return self.engine.leader_of(self.name, store.get("metadata", {}).get("annotations") or {})

    @property
    def replicas(self) -> list[str]:
        return sorted(m["name"] for m in self.status["members"] if m["role"] == "Replica")

    def ready(self, instances: int) -> bool:
        found = self.found
        status = found.get("status", {})
        current = bool(found) and status.get("observedGeneration") == found["metadata"]["generation"]
        return current and status.get("phase") == "Ready" and status.get("readyInstances") == instances

    def wait_ready(self, instances: int | None = None, seconds: float = 300) -> None:
        """Waits for the present declaration to be so, with all its instances."""
        wanted = self.spec["instances"] if instances is None else instances
        self.until(f"{wanted} are ready", lambda: self.ready(wanted), seconds)

    def wait_degraded(self, words: str, seconds: float = 300) -> None:
        """Waits for all instances to serve the present declaration, but for what Ready says in these words."""

        def said() -> bool:
            found = self.found
            status, ready = found.get("status", {}), self.namespace_client.condition(self.kind, self.name)
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            complete = status.get("readyInstances") == self.spec["instances"]
            return current and complete and ready.get("reason") == "Degraded" and words in ready["message"]

        self.until(f"it is degraded: {words}", said, seconds)

    def until(self, what: str, probe: Callable[[], T | None], seconds: float = 180) -> T:
        """As that of the place; says the status if it does not come."""
        return self.namespace_client.until(what, probe, seconds, about=(self.kind, self.name))

    def wait_reason(self, reason: str, what: str = "Ready", seconds: float = 120) -> dict[str, Any]:
        return self.namespace_client.wait_reason(self.kind, self.name, reason, what, seconds)

    def annotate(self, name: str, value: str | None) -> None:
        """One of the product's annotations; None takes it away."""
        key = f"databases.steersman.dev/{name}"
        self.namespace_client.patch(self.kind, self.name, {"metadata": {"annotations": {key: value}}})

    def endpoints(self, service: str = "rw") -> list[str]:
        """The pods that a Service leads to."""
        slices = self.namespace_client.all(
            "endpointslices", f"--selector=kubernetes.io/service-name={self.name}-{service}"
        )
        endpoints: list[dict[str, Any]] = [e for each in slices for e in each.get("endpoints") or ()]
        return sorted(e["targetRef"]["name"] for e in endpoints if e.get("conditions", {}).get("ready", True))

    def pod(self, instance: str) -> dict[str, Any]:
        return self.namespace_client.get("pod", f"{instance}-0")

    @property
    def selector(self) -> str:
        """Chooses the instances' pods, as an argument of kubectl."""
        return f"--selector=databases.steersman.dev/cluster={self.name}"

    def pods(self) -> dict[str, Any]:
        """UIDs and restarts of the instances' pods."""
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                [c["restartCount"] for c in pod["status"].get("containerStatuses", ())],
            )
            for pod in self.namespace_client.all("pods", self.selector)
        }

    def nodes(self) -> dict[str, str]:
        """The node of each instance."""
        found = self.namespace_client.all("pods", self.selector)
        return {pod["metadata"]["name"].removesuffix("-0"): pod["spec"].get("nodeName", "") for pod in found}

    def processes(self) -> dict[str, str]:
        """The process id of each instance's server: another one after a restart."""
        return {name: self.execute(name, "sh", "-c", self.engine.pid).strip() for name in self.nodes()}

    def signal(self, instance: str, name: str) -> None:
        """Sends one, such as ``KILL``, to an instance's server. Raises CommandFailed."""
        self.execute(instance, "sh", "-c", f"kill -{name} $({self.engine.pid})")

    def execute(self, instance: str, *command: str, seconds: float = 30) -> str:
        """Runs a command beside an instance's server. Raises CommandFailed."""
        return self.namespace_client.kubectl(
            "exec", f"{instance}-0", "--container=server", "--", *command, seconds=seconds
        )

    def sql(self, statement: str, database: str = "", instance: str = "") -> str:
        """As the superuser, in the pod of the primary or of an instance."""
        command = self.engine.admin_command(statement, database or self.engine.administrative)
        return self.execute(instance or self.leader, *command).strip()

    def server_values(self, parameter: str) -> set[str]:
        """What the servers of all instances say of a parameter."""
        members = [member["name"] for member in self.status["members"]]
        return {self.sql(self.engine.show_parameter(parameter), instance=member) for member in members}

    def delete(self, seconds: float = 170) -> None:
        self.namespace_client.kubectl(
            "delete", self.kind, self.name, f"--timeout={seconds:.0f}s", seconds=seconds + 10
        )


@dataclass
class SqlClient:
    """A pod beside a cluster, with its client, whose user has nothing but what a Secret of the product says.

    Args:
        secret: with ``host``, ``port``, ``user``, ``dbname`` and ``password``.
        host: instead of the Secret's.
        on: the node that the pod is to be on.
        settings: more words of its login, as in `options=-csynchronous_commit=local`.
    """

    cluster: ClusterUnderTest
    secret: str
    host: str = ""
    name: str = "client"
    node: str = ""
    settings: str = ""

    @property
    def login(self) -> str:
        """A connection string, but for the password. The servers are verified by name."""
        entries = self.cluster.namespace_client.secret(self.secret)
        said = self.cluster.engine.connection_string(entries, self.host or entries["host"])
        return f"{said} {self.settings}".rstrip()

    def start(self, command: Sequence[str] = ("sleep", "7200")) -> None:
        image = self.cluster.status["image"]

        def entry(key: str) -> dict[str, Any]:
            return {"name": self.secret, "key": key}

        container = {
            "name": "client",
            "image": image,
            "command": list(command),
            "env": [
                {"name": self.cluster.engine.password, "valueFrom": {"secretKeyRef": entry("password")}},
                {"name": "CA", "value": "/tls/ca.crt"},
                *({"name": n, "valueFrom": {"secretKeyRef": entry(k)}} for n, k in _STRINGS.items()),
            ],
            "volumeMounts": [
                {"name": "tls", "mountPath": "/tls"},
                {"name": "source", "mountPath": "/source"},
            ],
        }
        spec = {
            "terminationGracePeriodSeconds": 1,
            # It sees what happens when a node is lost: it is not moved.
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/hostname": self.node} if self.node else {},
            "containers": [container],
            "volumes": [
                {"name": "tls", "secret": {"secretName": self.secret}},
                {"name": "source", "configMap": {"name": "writer"}},
            ],
        }
        source = {"writer.py": Path(writer.__file__).read_text(), "reader.py": _READER.read_text()}
        self.cluster.namespace_client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "writer"}, "data": source},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name}, "spec": spec},
        )
        wait = ("wait", f"pod/{self.name}", "--for=condition=Ready", "--timeout=90s")
        self.cluster.namespace_client.kubectl(*wait, seconds=100)

    def sql(self, statement: str, login: str = "") -> str:
        """What the server answers. Raises CommandFailed with its words."""
        command = self.cluster.engine.client_command(statement, login or self.login)
        return self.cluster.namespace_client.kubectl("exec", self.name, "--", *command, seconds=40).strip()

    def by_uri(self, statement: str) -> str:
        """What the server answers to who logs in by each connection string of the Secret.

        It is verified by the `ca.crt` there. Raises CommandFailed with its words, or those of who does not trust it.
        """
        commands = (self.cluster.engine.uri_command(variable, statement) for variable in _STRINGS)
        (said,) = {
            self.cluster.namespace_client.kubectl("exec", self.name, "--", *command, seconds=40).strip()
            for command in commands
        }
        return said

    def stop(self) -> None:
        """Waits until it has ended: it would go on writing, and what it writes to may be the next one's by then."""
        delete = ("delete", "pod", self.name, "--ignore-not-found")
        try:
            self.cluster.namespace_client.kubectl(*delete, "--timeout=20s")
        except CommandFailed:
            # Its node is lost.
            self.cluster.namespace_client.kubectl(*delete, "--force", "--grace-period=0")


@dataclass
class WriteLog:
    """What a writing client has seen."""

    client: SqlClient
    table: str = "written"
    acknowledged: list[write_gaps.Row] = field(default_factory=list[write_gaps.Row])
    errors: list[str] = field(default_factory=list[str])

    def read_log(self) -> None:
        """Reads its log."""
        lines = self.client.cluster.namespace_client.kubectl("logs", self.client.name, seconds=30).splitlines()
        self.acknowledged = write_gaps.parse_acknowledged(lines)
        self.errors = [line for line in lines if line and not line.split()[0].isdecimal()]

    def wait_for_writes(self, since: float, seconds: float = 120) -> None:
        """Waits until a write that began after ``since`` was acknowledged, for two seconds on end."""

        def written() -> bool:
            self.read_log()
            return bool(self.acknowledged) and self.acknowledged[-1].moment > since + 2

        self.client.cluster.until("writes go on", written, seconds)

    @property
    def longest_gap(self) -> float:
        """The longest time between two acknowledgements, in seconds."""
        return write_gaps.longest_gap(self.acknowledged)

    def lost_rows(self) -> int:
        """How many rows were acknowledged and are not there."""
        client = self.client
        database = client.cluster.namespace_client.secret(client.secret)["dbname"]
        there = client.cluster.sql(f"SELECT number FROM {self.table}", database)
        return len({row.number for row in self.acknowledged} - set(map(int, there.split())))


@contextmanager
def writing(
    cluster: ClusterUnderTest,
    secret: str,
    host: str = "",
    on: str = "",
    table: str = "written",
    settings: str = "",
) -> Generator[WriteLog]:
    """A client that writes meanwhile, as the owner of a database."""
    name = f"writer-{secrets.token_hex(3)}"
    client = SqlClient(cluster, secret, host, name=name, node=on, settings=settings)
    entries = cluster.namespace_client.secret(secret)
    cluster.sql(cluster.engine.create_table(table, entries["user"]), entries["dbname"])
    client.start(("python3", "/source/writer.py", cluster.engine.driver, client.login, str(RATE), table))
    seen = WriteLog(client, table)
    try:
        seen.wait_for_writes(time.time())
        yield seen
    finally:
        client.stop()
