"""A ``Database`` as its user sees it: YAML in, kubectl and SQL out."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import yaml

from devcluster.errors import CommandFailed
from devcluster.target import Target, wait_until

VERSIONS = {"postgresql": "17", "mysql": "9.7"}
# New data of MySQL are a quarter of a GiB, and its binary logs are beside them.
_SIZES = {"postgresql": "256Mi", "mysql": "1Gi"}

# Inside of the pod the server's own account needs no password.
_ADMIN = {
    "postgresql": 'exec psql -X -d "$1" -v ON_ERROR_STOP=1 -At -c "$2"',
    "mysql": "exec mysql --no-defaults --default-character-set=utf8mb4 --user=root "
    '--socket=/run/steersman/mysqld.sock -N -e "$2" "$1"',
}
CLIENT = {
    "postgresql": 'PGPASSWORD="$5" PGCONNECT_TIMEOUT=5 '
    'exec psql -h "$1" -p "$2" -U "$3" -d "$4" -v ON_ERROR_STOP=1 -At -c "$6"',
    "mysql": 'MYSQL_PWD="$5" '
    'exec mysql --connect-timeout=5 --default-character-set=utf8mb4 -h "$1" -P "$2" -u "$3" -N -e "$6" "$4"',
}


@dataclass
class DatabaseUnderTest:
    """One ``Database`` in one namespace."""

    cluster: Target
    namespace: str
    name: str
    engine: str

    @property
    def statefulset(self) -> str:
        """The StatefulSet of its server."""
        return f"{self.name}-0"

    @property
    def pod(self) -> str:
        """The pod of its server."""
        return f"{self.statefulset}-0"

    @property
    def retained(self) -> set[str]:
        """What is left of it with ``deletionPolicy: Retain``, as ``objects`` tells it."""
        keys = ("admin", "app", "ca", "operator", "peer", "tls")
        return {f"persistentvolumeclaim/data-{self.name}-0", *(f"secret/{self.name}-{key}" for key in keys)}

    def manifest(self, **spec: Any) -> str:
        """Its YAML; ``spec`` adds or replaces fields by their wire names, None leaves a field out."""
        fields = {"engine": self.engine, "version": VERSIONS[self.engine], "storageSize": _SIZES[self.engine], **spec}
        return yaml.safe_dump(
            {
                "apiVersion": "databases.steersman.dev/v1alpha1",
                "kind": "Database",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": {k: v for k, v in fields.items() if v is not None},
            }
        )

    def apply(self, **spec: Any) -> None:
        """``kubectl apply``, once the operator's webhooks answer. Raises CommandFailed with the refusal."""
        manifest = self.manifest(**spec)

        def applied() -> bool:
            try:
                self.cluster.apply(manifest)
            except CommandFailed as failed:
                if "failed calling webhook" not in str(failed):
                    raise
                return False
            return True

        wait_until("the operator's webhooks answer", applied, seconds=90)

    def get(self) -> dict[str, Any] | None:
        """The object, or None."""
        return self.cluster.get("database", self.name, f"--namespace={self.namespace}")

    @property
    def status(self) -> dict[str, Any]:
        """Its status; empty before there is one."""
        return (self.get() or {}).get("status", {})

    @property
    def ready_condition(self) -> dict[str, Any]:
        """The condition Ready; empty before there is one."""
        conditions: list[dict[str, Any]] = self.status.get("conditions", [])
        return next((c for c in conditions if c["type"] == "Ready"), dict[str, Any]())

    def wait_ready(self, seconds: float = 180) -> None:
        """Waits for phase Ready of the present generation."""

        def ready() -> bool:
            found = self.get()
            status = (found or {}).get("status", {})
            return (
                found is not None
                and status.get("phase") == "Ready"
                and status.get("observedGeneration") == found["metadata"]["generation"]
            )

        try:
            wait_until(f"{self.name} is Ready", ready, seconds=seconds)
        except Exception as error:
            error.add_note(f"status: {json.dumps(self.status, indent=1)}")
            raise

    def wait_reason(self, reason: str, seconds: float = 60) -> dict[str, Any]:
        """Waits for the condition Ready to be False for ``reason`` and returns it."""

        def found() -> dict[str, Any] | None:
            condition = self.ready_condition
            return condition if (condition.get("reason"), condition.get("status")) == (reason, "False") else None

        return wait_until(f"{self.name} says {reason}", found, seconds=seconds)

    def forbid_pods(self) -> None:
        """Leaves its namespace no room for a pod, before there is one."""
        self.cluster.kubectl("create", "quota", "no-pods", "--hard=pods=0", f"--namespace={self.namespace}")

    def delete(self, *flags: str, seconds: float = 150) -> None:
        """``kubectl delete``, which waits until the object is gone."""
        arguments = ("delete", "database", self.name, f"--namespace={self.namespace}", *flags)
        self.cluster.kubectl(*arguments, f"--timeout={seconds:.0f}s", seconds=seconds + 10)

    def objects(self, kinds: str = "statefulset,service,secret,pvc,pod") -> set[str]:
        """What is there of it, as ``kind/name``."""
        found = set[str]()
        for label in (
            "app.kubernetes.io/instance",
            "databases.steersman.dev/cluster",
            "databases.steersman.dev/database",
        ):
            place = (f"--namespace={self.namespace}", f"--selector={label}={self.name}")
            found |= set(self.cluster.kubectl("get", kinds, *place, "--output=name").split())
        return found

    def get_object(self, kind: str, name: str) -> dict[str, Any]:
        """One object of the namespace. Raises CommandFailed where there is none."""
        found = self.cluster.get(kind, name, f"--namespace={self.namespace}")
        if found is None:
            raise CommandFailed(f"{kind} {name} is missing")
        return found

    def secret(self, suffix: str = "app") -> dict[str, str]:
        """The Secret's entries, decoded."""
        data = self.get_object("secret", f"{self.name}-{suffix}")["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def events(self) -> list[dict[str, Any]]:
        """The Events about it."""
        found = self.cluster.get(
            "events",
            f"--namespace={self.namespace}",
            f"--field-selector=involvedObject.name={self.name},involvedObject.kind=Database",
        )
        return found["items"] if found else []

    def events_with_cluster(self) -> list[dict[str, Any]]:
        """Those about it, and about the cluster that was made for it, whose name is the same."""
        where = (f"--namespace={self.namespace}", f"--field-selector=involvedObject.name={self.name}")
        found = self.cluster.get("events", *where)
        return found["items"] if found else []

    def admin_sql(self, statement: str, database: str | None = None) -> str:
        """Runs SQL as the administrator, inside the pod. Raises CommandFailed with the server's words."""
        default = {"postgresql": "postgres", "mysql": "mysql"}[self.engine]
        return self._in_pod(_ADMIN[self.engine], database or default, statement)

    def client_sql(self, statement: str, password: str | None = None) -> str:
        """Runs SQL with what the application's Secret holds, through the Service."""
        entries = self.secret()
        password = entries["password"] if password is None else password
        where = (entries["host"], entries["port"], entries["user"], entries["dbname"])
        return self._in_pod(CLIENT[self.engine], *where, password, statement)

    def _in_pod(self, script: str, *arguments: str) -> str:
        command = ("exec", f"--namespace={self.namespace}", self.pod, "--container=server", "--")
        return self.cluster.kubectl(*command, "sh", "-c", script, "sh", *arguments, seconds=30).strip()

    def eventually(self, what: str, probe: Callable[[], Any], seconds: float = 45) -> None:
        """Waits until ``probe`` gives something true; SQL and kubectl errors count as not yet."""

        def attempt() -> Any:
            try:
                return probe() or None
            except CommandFailed:
                return None

        wait_until(what, attempt, seconds=seconds, interval=0.5)
