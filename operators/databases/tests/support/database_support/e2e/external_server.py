"""A database server that is none of the operator's, as somebody runs one beside it: `serverRef` leads to it."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from database_support.e2e.cluster import NamespaceClient
from database_support.e2e.engines import MYSQL, POSTGRESQL, EngineCommands
from devcluster.images import MYSQL as MYSQL_IMAGE
from devcluster.images import POSTGRESQL as POSTGRESQL_IMAGE
from framework_support.certificates import CertificateAuthority

_TLS, _RULES = "/etc/somebody/tls", "/etc/somebody/rules"
_IMAGES: Mapping[EngineCommands, str] = {POSTGRESQL: POSTGRESQL_IMAGE.reference, MYSQL: MYSQL_IMAGE.reference}
_PORTS: Mapping[EngineCommands, int] = {POSTGRESQL: 5432, MYSQL: 3306}
_ADMINISTRATORS: Mapping[EngineCommands, str] = {POSTGRESQL: "postgres", MYSQL: "master"}
_ARGUMENTS: Mapping[EngineCommands, Sequence[str]] = {
    POSTGRESQL: (
        *("-c", f"ssl_cert_file={_TLS}/tls.crt", "-c", f"ssl_key_file={_TLS}/tls.key"),
        *("-c", f"ssl_ca_file={_TLS}/ca.crt", "-c", f"hba_file={_RULES}/pg_hba.conf"),
        *("-c", "shared_buffers=32MB"),
    ),
    MYSQL: (
        *(f"--ssl-cert={_TLS}/tls.crt", f"--ssl-key={_TLS}/tls.key", f"--ssl-ca={_TLS}/ca.crt"),
        "--innodb-buffer-pool-size=32M",
    ),
}
REGISTRAR = "registrar"
"""An administrator, once there is one: see `ReferredServer.appoint`."""
REGISTRY = "registry"
"""A database that is there then."""
CARETAKER = "caretaker"
"""An administrator who is no superuser, once there is one: see `ReferredServer.appoint_modestly`."""
# As RDS gives them to its master, who reads the server's own tables and writes none of them. Sources: Amazon RDS User
# Guide, "Master user account privileges", "Role-based privilege model for RDS for MySQL".
_WRITING = (
    "INSERT, UPDATE, DELETE, CREATE, DROP, REFERENCES, INDEX, ALTER, CREATE VIEW, CREATE ROUTINE, ALTER ROUTINE"
)
_MASTERS = (
    f"{_WRITING}, SELECT, RELOAD, PROCESS, SHOW DATABASES, CREATE TEMPORARY TABLES, LOCK TABLES, EXECUTE, EVENT, "
    "TRIGGER, SHOW VIEW, REPLICATION SLAVE, REPLICATION CLIENT, CREATE USER, CREATE ROLE, DROP ROLE, "
    "APPLICATION_PASSWORD_ADMIN, ROLE_ADMIN, SET_ANY_DEFINER, XA_RECOVER_ADMIN"
)
# As the image has it, but for one administrator.
_HBA = f"""\
local    all       postgres           peer
host     postgres  {REGISTRAR}   all  reject
hostssl  all       {REGISTRAR}   all  scram-sha-256  clientcert=verify-full
host     all       all           all  scram-sha-256
"""
_SIZES: Mapping[EngineCommands, str] = {POSTGRESQL: "256Mi", MYSQL: "1Gi"}


@dataclass
class ExternalServer:
    """One server with its data on a volume, its administrator's Secret, and as many Services as tests make.

    Its certificate is the authority's, for the Service of its own name.
    """

    namespace_client: NamespaceClient
    engine: EngineCommands
    name: str = "legacy"
    authority: CertificateAuthority = field(default_factory=CertificateAuthority)

    @property
    def pod(self) -> str:
        return f"{self.name}-0"

    @property
    def administrator(self) -> str:
        """The Secret with its administrator's credentials."""
        return f"{self.name}-root"

    @property
    def host(self) -> str:
        return f"{self.name}.{self.namespace_client.namespace}.svc"

    def start(self) -> None:
        """Waits until it serves, by the Service of its name."""
        certificate, key = self.authority.issue(self.name, names=[self.host])
        credentials = {"username": _ADMINISTRATORS[self.engine], "password": secrets.token_urlsafe(12)}
        self.namespace_client.create(
            secret(self.administrator, credentials),
            secret(
                f"{self.name}-tls", {"tls.crt": certificate, "tls.key": key, "ca.crt": self.authority.certificate}
            ),
            _rules(f"{self.name}-rules"),
            self._set(),
        )
        self.serve(self.name)
        self.rolled_out()

    def create_certificate_admin(self, password: str) -> None:
        """Makes `REGISTRAR`, an administrator who shows a certificate; not in PostgreSQL's database ``postgres``."""
        if self.engine is POSTGRESQL:
            self.sql(f"CREATE ROLE {REGISTRAR} SUPERUSER LOGIN PASSWORD '{password}'")
            self.sql(f"CREATE DATABASE {REGISTRY}")
        else:
            self.sql(f"CREATE USER {REGISTRAR}@'%' IDENTIFIED BY '{password}' REQUIRE X509")
            self.sql(f"GRANT ALL ON *.* TO {REGISTRAR}@'%' WITH GRANT OPTION")

    def create_non_superuser_admin(self, password: str) -> None:
        """Makes `CARETAKER`, who may make users and databases, and is nobody mighty."""
        if self.engine is POSTGRESQL:
            self.sql(f"CREATE ROLE {CARETAKER} LOGIN CREATEROLE CREATEDB PASSWORD '{password}'")
        else:
            self.sql(f"CREATE USER {CARETAKER}@'%' IDENTIFIED BY '{password}'")
            self.sql(f"GRANT {_MASTERS} ON *.* TO {CARETAKER}@'%' WITH GRANT OPTION")
            self.sql(f"SET GLOBAL partial_revokes = ON; REVOKE {_WRITING} ON mysql.* FROM {CARETAKER}@'%'")

    def serve(self, service: str, port: int | None = None) -> None:
        """Another Service in front of it, at the engine's own port unless given."""
        own = _PORTS[self.engine]
        ports = [{"port": port or own, "targetPort": own}]
        spec = {"selector": {"server": self.name}, "ports": ports}
        self.namespace_client.create(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": service}, "spec": spec}
        )

    def server_ref(self, service: str = "", namespace: str | None = None, **tls: Any) -> dict[str, Any]:
        """The part of a spec that puts something on it; encrypted to anybody unless ``tls`` says more."""
        elsewhere = {} if namespace is None else {"namespace": namespace}
        server = {
            "service": {"name": service or self.name, **elsewhere},
            "administrator": {"name": self.administrator, **elsewhere},
            "tls": tls or {"mode": "Require"},
        }
        return {"engine": self.engine.settings, "serverRef": server}

    def scale(self, replicas: int) -> None:
        """Waits until so many serve."""
        self.namespace_client.kubectl("scale", "statefulset", self.name, f"--replicas={replicas}")
        if replicas:
            self.rolled_out()
        else:
            self.namespace_client.kubectl("wait", "pod", self.pod, "--for=delete", "--timeout=90s", seconds=100)

    def rolled_out(self) -> None:
        self.namespace_client.kubectl("rollout", "status", f"statefulset/{self.name}", "--timeout=180s", seconds=190)

    def signal(self, name: str) -> None:
        """Sends one, such as ``STOP``, to all processes of the server: sessions that are open hang, too."""
        self.namespace_client.kubectl("exec", self.pod, "--container=server", "--", "sh", "-c", f"kill -{name} -1")

    def sql(self, statement: str, database: str = "") -> str:
        """As its superuser, beside it. Raises CommandFailed with its words."""
        command = self.engine.admin_command(statement, database or self.engine.administrative)
        return self.namespace_client.kubectl(
            "exec", self.pod, "--container=server", "--", *command, seconds=30
        ).strip()

    def query_as(self, login: Mapping[str, str], statement: str) -> str:
        """As who has nothing but the entries of a Secret. Raises CommandFailed with its words."""
        return self.namespace_client.log_in(self.pod, login, statement, self.engine.settings)

    def _set(self) -> Mapping[str, Any]:
        container: Mapping[str, Any] = {
            "name": "server",
            "image": _IMAGES[self.engine],
            "args": list(_ARGUMENTS[self.engine]),
            "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
            # Not asked again once it serves: a Service must still lead to a server that hangs.
            "startupProbe": {
                "exec": {"command": ["steersman-probe", "readiness"]},
                "periodSeconds": 1,
                "timeoutSeconds": 5,
                "failureThreshold": 180,
            },
            "volumeMounts": [
                {"name": "data", "mountPath": "/var/lib/steersman/data"},
                {"name": "run", "mountPath": "/run/steersman"},
                {"name": "administrator", "mountPath": "/etc/steersman/admin"},
                {"name": "tls", "mountPath": _TLS},
                {"name": "rules", "mountPath": _RULES},
            ],
        }
        pod: Mapping[str, Any] = {
            # No server is process 1, which nobody in the pod can stop.
            "shareProcessNamespace": True,
            "terminationGracePeriodSeconds": 20,
            "securityContext": {
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "fsGroup": 10001,
                # PostgreSQL does not start with data that their group may write.
                "fsGroupChangePolicy": "OnRootMismatch",
            },
            "containers": [container],
            "volumes": [
                {"name": "run", "emptyDir": {}},
                {"name": "administrator", "secret": {"secretName": self.administrator, "defaultMode": 0o440}},
                {"name": "tls", "secret": {"secretName": f"{self.name}-tls", "defaultMode": 0o440}},
                {"name": "rules", "configMap": {"name": f"{self.name}-rules"}},
            ],
        }
        storage = {"resources": {"requests": {"storage": _SIZES[self.engine]}}, "accessModes": ["ReadWriteOnce"]}
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": self.name},
            "spec": {
                "serviceName": self.name,
                "selector": {"matchLabels": {"server": self.name}},
                "template": {"metadata": {"labels": {"server": self.name}}, "spec": pod},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": storage}],
            },
        }


def secret(name: str, entries: Mapping[str, str | bytes]) -> Mapping[str, Any]:
    """A Secret, as `Place.make` takes it."""
    values = {key: value.encode() if isinstance(value, str) else value for key, value in entries.items()}
    data = {key: base64.b64encode(value).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def _rules(name: str) -> Mapping[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"pg_hba.conf": _HBA}}
