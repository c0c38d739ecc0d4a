"""A MySQL cluster made by hand of pods with the image's agent, with nothing that looks after it: no operator runs.

What these tests find out is therefore what Group Replication, the image and its agent do by themselves.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from devcluster.target import Target
from framework_support.certificates import CertificateAuthority
from steersman_databases.engines.mysql.sql.system_accounts import statements

PREFIX = "databases.steersman.dev"
_TESTER = "tester"


@dataclass
class MySQLPods:
    """One cluster on a target: `apply` makes everything, the instances too."""

    target: Target
    namespace: str
    image: str
    name: str = "my"
    instances: int = 3
    servers: CertificateAuthority = field(default_factory=CertificateAuthority)
    clients: CertificateAuthority = field(default_factory=CertificateAuthority)

    def apply(self) -> None:
        """Everything. Applied again, it changes nothing."""
        self._apply([*self._access(), *self._services(), *self._secrets(), *self._config()])
        named = {"group-name": str(uuid.uuid4()), "instances": ",".join(map(str, range(self.instances)))}
        self.annotate({f"{PREFIX}/{name}": value for name, value in named.items()})
        self._apply([part for n in range(self.instances) for part in self._instance(n)])

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Annotations of the group's ConfigMap; None takes one away."""
        patch = json.dumps({"metadata": {"annotations": annotations}})
        self.kubectl("patch", "configmap", f"{self.name}-group", "--type=merge", f"--patch={patch}")

    def pod(self, number: int) -> str:
        return f"{self.name}-{number}-0"

    def members(self) -> dict[str, dict[str, Any]]:
        """What each pod last said of itself."""
        found = self.target.get("pods", f"--namespace={self.namespace}", f"--selector={PREFIX}/cluster={self.name}")
        return {
            pod["metadata"]["name"]: json.loads(
                pod["metadata"].get("annotations", {}).get(f"{PREFIX}/member-status", "{}")
            )
            for pod in (found or {"items": []})["items"]
        }

    def group(self) -> dict[str, Any]:
        """What the members have agreed on."""
        found = self.target.get("configmap", f"{self.name}-group", f"--namespace={self.namespace}")
        annotations: Mapping[str, str] = (found or {"metadata": {}})["metadata"].get("annotations") or {}
        return json.loads(annotations.get(f"{PREFIX}/group-state", "{}"))

    def endpoint(self) -> str | None:
        """The pod that -rw leads to."""
        found = self.target.get("endpointslice", f"{self.name}-rw-ipv4", f"--namespace={self.namespace}")
        endpoints: list[dict[str, Any]] = (found or {}).get("endpoints") or []
        return str(endpoints[0]["targetRef"]["name"]) if endpoints else None

    def leader(self) -> str | None:
        """The pod that says it leads with a majority, and to which -rw leads."""
        told = [name for name, said in self.members().items() if said.get("primary") and said.get("majority")]
        return told[0] if len(told) == 1 and self.endpoint() == told[0] else None

    def settled(self) -> str | None:
        """The primary, once all are online and Ready."""
        leader, members = self.leader(), self.members()
        online = [name for name, said in members.items() if said.get("state") == "Online" and self._ready(name)]
        return leader if len(online) == self.instances else None

    def _ready(self, pod: str) -> bool:
        found = self.target.get("pod", pod, f"--namespace={self.namespace}") or {}
        return any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in found.get("status", {}).get("conditions", [])
        )

    def sql(self, pod: str, statement: str, host: str = "127.0.0.1") -> str:
        """As a client, from a pod. Raises CommandFailed."""
        options = ["--no-defaults", "--protocol=tcp", f"--host={host}", f"--user={_TESTER}", "--connect-timeout=3"]
        command = ["mysql", *options, "--batch", "--skip-column-names", f"--execute={statement}"]
        return self.execute(pod, "env", f"MYSQL_PWD={_TESTER}", *command).strip()

    def execute(self, pod: str, *command: str, seconds: float = 30) -> str:
        """Runs a command in a pod's container. Raises CommandFailed."""
        return self.kubectl("exec", pod, "--container=server", "--", *command, seconds=seconds)

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = 60) -> str:
        return self.target.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin, seconds=seconds)

    def _apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "--server-side", "--field-manager=by-hand", "--filename=-", stdin=listed)

    def _object(self, api_version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        meta = {"name": name, "namespace": self.namespace, "labels": fields.pop("labels", {})}
        return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}

    def _access(self) -> list[dict[str, Any]]:
        group = "rbac.authorization.k8s.io"

        def rule(of: str, resource: str, verbs: Sequence[str], *names: str) -> dict[str, Any]:
            return {"apiGroups": [of], "resources": [resource], "verbs": verbs, "resourceNames": list(names)}

        rules = [
            rule("", "configmaps", ["get", "patch"], f"{self.name}-group"),
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            rule("", "pods", ["patch"], *map(self.pod, range(self.instances))),
            rule("discovery.k8s.io", "endpointslices", ["get", "patch"], f"{self.name}-rw-ipv4"),
        ]
        account = {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}
        reference = {"apiGroup": group, "kind": "Role", "name": self.name}
        return [
            self._object("v1", "ServiceAccount", self.name),
            self._object(f"{group}/v1", "Role", self.name, rules=rules),
            self._object(f"{group}/v1", "RoleBinding", self.name, roleRef=reference, subjects=[account]),
        ]

    def _services(self) -> list[dict[str, Any]]:
        ports = [{"name": "sql", "port": 3306, "targetPort": "sql", "protocol": "TCP"}]
        labels = {
            "app.kubernetes.io/name": "mysql",
            "app.kubernetes.io/instance": self.name,
            "app.kubernetes.io/managed-by": "steersman-databases",
            "kubernetes.io/service-name": f"{self.name}-rw",
            "endpointslice.kubernetes.io/managed-by": "steersman-databases",
        }
        headless = {"clusterIP": "None", "selector": {f"{PREFIX}/cluster": self.name}, "ports": ports}
        return [
            self._object("v1", "Service", f"{self.name}-rw", spec={"ports": ports}),
            self._object("v1", "Service", f"{self.name}-headless", spec=headless),
            self._object(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                f"{self.name}-rw-ipv4",
                labels=labels,
                addressType="IPv4",
                ports=[{"name": "sql", "port": 3306, "protocol": "TCP"}],
            ),
        ]

    def _secrets(self) -> list[dict[str, Any]]:
        server = self.servers.issue("server", names=[f"{self.name}-rw"])
        peer = self.clients.issue("steersman_replication")
        return [
            self._secret(f"{self.name}-tls", *server, self.servers.certificate),
            self._secret(f"{self.name}-peer", *peer, self.clients.certificate),
        ]

    def _secret(self, name: str, certificate: bytes, key: bytes, bundle: bytes) -> dict[str, Any]:
        data = {"tls.crt": certificate, "tls.key": key, "ca.crt": bundle}
        encoded = {file: base64.b64encode(content).decode() for file, content in data.items()}
        return self._object("v1", "Secret", name, type="kubernetes.io/tls", data=encoded)

    def _config(self) -> list[dict[str, Any]]:
        accounts = (
            "".join(f"{statement};\n" for statement in statements())
            + f"CREATE USER {_TESTER}@'%' IDENTIFIED BY '{_TESTER}';\n"
            f"GRANT ALL ON *.* TO {_TESTER}@'%' WITH GRANT OPTION;\n"
        )
        data = {"accounts.sql": accounts, "endpoint-slices": f"{self.name}-rw-ipv4\n"}
        return [
            self._object("v1", "ConfigMap", f"{self.name}-mysql", data=data),
            self._object("v1", "ConfigMap", f"{self.name}-group"),
        ]

    def _instance(self, number: int) -> list[dict[str, Any]]:
        name = f"{self.name}-{number}"
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        labels = {f"{PREFIX}/cluster": self.name, f"{PREFIX}/instance": str(number)}
        spec = {
            "replicas": 1,
            "serviceName": f"{self.name}-headless",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": self._pod(number)},
        }
        return [
            self._object("v1", "PersistentVolumeClaim", f"data-{name}", spec=claim),
            self._object("apps/v1", "StatefulSet", name, spec=spec),
        ]

    def _pod(self, number: int) -> dict[str, Any]:
        fields = {
            "POD_NAME": "metadata.name",
            "POD_NAMESPACE": "metadata.namespace",
            "POD_UID": "metadata.uid",
            "POD_IPS": "status.podIPs",
            "NODE_NAME": "spec.nodeName",
        }
        plain = {"CLUSTER_NAME": self.name, "INSTANCE": str(number)}
        places = {
            "data": "/var/lib/steersman/data",
            "run": "/run/steersman",
            "tmp": "/tmp",
            "config": "/etc/steersman/mysql",
            "tls": "/etc/steersman/tls",
            "peer": "/etc/steersman/peer",
        }
        container = {
            "name": "server",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["steersman-agent"],
            "env": [
                *({"name": k, "valueFrom": {"fieldRef": {"fieldPath": v}}} for k, v in fields.items()),
                *({"name": k, "value": v} for k, v in plain.items()),
            ],
            "ports": [{"name": "sql", "containerPort": 3306, "protocol": "TCP"}],
            "startupProbe": _probe("startup", 1, 600),
            "livenessProbe": _probe("liveness", 10, 6),
            "readinessProbe": _probe("readiness", 2, 3),
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in places.items()],
            "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "768Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        return {
            "serviceAccountName": self.name,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 120,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "fsGroup": 10001,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{self.name}-{number}"}},
                {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "config", "configMap": {"name": f"{self.name}-mysql"}},
                {"name": "tls", "secret": {"secretName": f"{self.name}-tls", "defaultMode": 0o440}},
                {"name": "peer", "secret": {"secretName": f"{self.name}-peer", "defaultMode": 0o440}},
            ],
        }


def _probe(what: str, period: int, failures: int) -> dict[str, Any]:
    command = {"command": ["steersman-member", what]}
    return {"exec": command, "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures}
