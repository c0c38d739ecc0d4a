"""A PostgreSQL cluster made by hand of the engine's own parts, with nothing that looks after it: no operator runs.

What these tests and measurements find out is therefore what Patroni, the image and its scripts do by themselves.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from devcluster import layout
from devcluster.target import Target, wait_until
from framework_support.certificates import CertificateAuthority
from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import FrozenDict, ObjectKey, Quantity
from steersman_databases.core.labels import cluster_labels
from steersman_databases.engines.cluster_engine import (
    BootstrapDatabase,
    DeclaredCluster,
    PodTemplateSettings,
    SynchronousMode,
    SynchronousReplication,
)
from steersman_databases.engines.naming import INSTANCE_LABEL
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine
from steersman_databases.engines.postgresql.ha import patroni
from steersman_databases.features.access import rbac

ENGINE = PostgreSQLEngine()


def view(
    name: str, namespace: str, image: str, *, version: str = "17", mode: SynchronousMode = "Quorum"
) -> DeclaredCluster:
    """Three instances, small enough for a machine that others use too."""
    return DeclaredCluster(
        key=ObjectKey(namespace, name),
        uid="by-hand",
        kind="PostgreSQLCluster",
        engine="postgresql",
        version=version,
        image=image,
        instances=3,
        storage_size=Quantity("1Gi"),
        wal_size=None,
        pod_settings=PodTemplateSettings(
            resources=ResourceRequirements(
                requests=FrozenDict({"cpu": "50m", "memory": "128Mi"}), limits=FrozenDict({"memory": "512Mi"})
            ),
            shm_size=Quantity("64Mi"),
        ),
        writable_services=(f"{name}-rw",),
        synchronous=SynchronousReplication(mode=mode),
        bootstrap=BootstrapDatabase(
            database="app", owner="app", locale_provider="libc" if version == "15" else "builtin"
        ),
        parameters={"shared_buffers": "32MB", "max_connections": "40"},
    )


@dataclass
class PatroniCluster:
    """One cluster on a target. `apply` makes everything but the pods, `start` the instances."""

    target: Target
    declared: DeclaredCluster
    authority: CertificateAuthority = field(default_factory=CertificateAuthority)
    clients: CertificateAuthority = field(default_factory=CertificateAuthority)

    @property
    def namespace(self) -> str:
        return self.declared.key.namespace

    @property
    def name(self) -> str:
        return self.declared.key.name

    def apply(self) -> None:
        """Everything but StatefulSets, the settings in Patroni's ConfigMap too."""
        self._apply(self._access() + self._services() + self._secrets() + self._objects())
        self.configure(ENGINE.shared_configuration(self.declared))

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Writes Patroni's dynamic configuration."""
        self.annotate(self.declared.names.dcs_config.name, {"config": json.dumps(settings)})

    def annotate(self, configmap: str, annotations: Mapping[str, str | None]) -> None:
        """Annotations of a ConfigMap; None takes one away."""
        patch = json.dumps({"metadata": {"annotations": annotations}})
        self.kubectl("patch", "configmap", configmap, "--type=merge", f"--patch={patch}")

    def start(self, *numbers: int) -> None:
        """Makes claims and StatefulSets of these instances."""
        self._apply([part for number in numbers for part in (*self._claims(number), self._statefulset(number))])

    def start_all(self, seconds: float = 120) -> None:
        """The first instance alone, the others when it leads; all are Ready afterwards."""
        self.start(0)
        wait_until("the first leads", lambda: self.leader() == f"{self.name}-0-0", seconds=seconds)
        self.start(*range(1, self.declared.instances))
        wait_until("all stream", self.settled, seconds=seconds)

    def settled(self) -> bool:
        """Whether one leads, all others stream, and -rw has the one."""
        leader, members = self.leader(), self.members()
        streaming = [one for one in members.values() if one.get("replication_state") == "streaming"]
        return (
            leader is not None
            and len(members) == self.declared.instances
            and len(streaming) == self.declared.instances - 1
            and members.get(leader, {}).get("role") == "primary"
            and self.endpoint() == leader
            and (self.declared.synchronous.mode == "Disabled" or self.synchronous() != ())
        )

    def leader(self) -> str | None:
        """The pod that holds the lock, or held it last."""
        return self.annotations(self.declared.names.dcs_leader.name).get("leader")

    def synchronous(self) -> tuple[str, ...]:
        """The pods that may be promoted."""
        told = self.annotations(self.declared.names.dcs_sync.name).get("sync_standby") or ""
        return tuple(sorted(filter(None, told.split(","))))

    def annotations(self, configmap: str) -> Mapping[str, str]:
        found = self.target.get("configmap", configmap, f"--namespace={self.namespace}")
        return (found or {"metadata": {}})["metadata"].get("annotations") or {}

    def members(self) -> dict[str, dict[str, Any]]:
        """What each pod's Patroni last said of itself."""
        return {
            pod["metadata"]["name"]: json.loads(pod["metadata"].get("annotations", {}).get("status", "{}"))
            for pod in self._pods()
        }

    def nodes(self) -> dict[str, str]:
        """The node of each pod."""
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in self._pods()}

    def _pods(self) -> list[dict[str, Any]]:
        found = self.target.get("pods", f"--namespace={self.namespace}", f"--selector={self._selector}")
        return (found or {"items": []})["items"]

    def endpoint(self) -> str | None:
        """The pod that -rw leads to."""
        by_ip = dict(
            zip("46", self.declared.names.endpoint_slices(self.declared.names.service("rw").name), strict=True)
        )
        name = by_ip[layout.IP_FAMILY].name
        found = self.target.get("endpointslice", name, f"--namespace={self.namespace}")
        endpoints: list[dict[str, Any]] = (found or {}).get("endpoints") or []
        return str(endpoints[0]["targetRef"]["name"]) if endpoints else None

    def switch_over(self, to: str | None = None) -> None:
        """Asks for it as the operator does."""
        self.annotate(self.declared.names.dcs_failover.name, {"leader": self.leader(), "member": to})

    def execute(self, pod: str, *command: str, seconds: float = 20) -> str:
        """Runs a command in a pod's container. Raises CommandFailed."""
        return self.kubectl("exec", pod, "--container=server", "--", *command, seconds=seconds)

    def sql(self, pod: str, statement: str) -> str:
        """As the superuser, over the pod's own socket."""
        return self.execute(pod, "psql", "-XAtq", "-d", "postgres", "-c", statement).strip()

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = 60) -> str:
        return self.target.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin, seconds=seconds)

    @property
    def _selector(self) -> str:
        return ",".join(f"{key}={value}" for key, value in patroni.dcs_labels(self.declared).items())

    def _apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "--server-side", "--field-manager=by-hand", "--filename=-", stdin=listed)

    def _object(self, api_version: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        labels = {"app.kubernetes.io/instance": self.name}
        meta = {"name": name, "namespace": self.namespace, "labels": {**labels, **fields.pop("labels", {})}}
        return {"apiVersion": api_version, "kind": kind, "metadata": meta, **fields}

    def _access(self) -> list[dict[str, Any]]:
        names, labels = self.declared.names, {"app.kubernetes.io/instance": self.name}
        view, numbers = self.declared, range(self.declared.instances)
        role = rbac.role(
            names,
            labels,
            ENGINE.permissions,
            dcs_config_maps=view.dcs.all_keys,
            instances=numbers,
            writable=view.writable_services,
        )
        group = "rbac.authorization.k8s.io/v1"
        return [
            {"apiVersion": "v1", "kind": "ServiceAccount", **plain(rbac.service_account(names, labels))},
            {"apiVersion": group, "kind": "Role", **plain(role)},
            {"apiVersion": group, "kind": "RoleBinding", **plain(rbac.role_binding(names, labels))},
        ]

    def _services(self) -> list[dict[str, Any]]:
        names = self.declared.names
        ports = [{"name": "sql", "port": 5432, "targetPort": "sql", "protocol": "TCP"}]
        member = patroni.dcs_labels(self.declared)
        role = {**member, "databases.steersman.dev/role": "replica"}
        headless = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": member, "ports": ports}
        return [
            *(self._object("v1", "Service", one, spec={"ports": ports}) for one in self.declared.writable_services),
            self._object("v1", "Service", names.service("ro").name, spec={"ports": ports, "selector": role}),
            self._object("v1", "Service", names.service("r").name, spec={"ports": ports, "selector": member}),
            self._object("v1", "Service", names.headless_service.name, spec=headless),
            *(
                self._object(
                    "discovery.k8s.io/v1",
                    "EndpointSlice",
                    key.name,
                    labels={
                        **cluster_labels(self.declared),
                        "kubernetes.io/service-name": service,
                        "endpointslice.kubernetes.io/managed-by": "steersman-databases",
                    },
                    addressType=family,
                    ports=[{"name": "sql", "port": 5432, "protocol": "TCP"}],
                )
                for service in self.declared.writable_services
                for key, family in zip(names.endpoint_slices(service), ("IPv4", "IPv6"), strict=True)
            ),
        ]

    def _secrets(self) -> list[dict[str, Any]]:
        names, suffix = self.declared.names, f"{self.namespace}.svc"
        server = self.authority.issue(
            "server",
            names=[f"{names.service(role).name}{end}" for role in ("rw", "ro", "r") for end in ("", f".{suffix}")],
        )
        peer = self.clients.issue("steersman_replication")
        return [
            self._secret(names.server_certificate.name, *server, self.authority.certificate),
            self._secret(names.peer_certificate.name, *peer, self.clients.certificate),
        ]

    def _secret(self, name: str, certificate: bytes, key: bytes, bundle: bytes) -> dict[str, Any]:
        data = {"tls.crt": certificate, "tls.key": key, "ca.crt": bundle}
        encoded = {file: base64.b64encode(content).decode() for file, content in data.items()}
        return self._object("v1", "Secret", name, type="kubernetes.io/tls", data=encoded)

    def _objects(self) -> list[dict[str, Any]]:
        return [
            {"apiVersion": "v1", "kind": "ConfigMap", **plain(part)}
            for part in ENGINE.supporting_objects(self.declared)
        ]

    def _volume(self, name: str, size: Quantity) -> dict[str, Any]:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": str(size)}}}
        return self._object("v1", "PersistentVolumeClaim", name, spec=spec)

    def _claims(self, number: int) -> list[dict[str, Any]]:
        names, wal = self.declared.names, self.declared.wal_size
        more = [self._volume(names.wal_pvc(number).name, wal)] if wal else []
        return [self._volume(names.data_pvc(number).name, self.declared.storage_size), *more]

    def _statefulset(self, number: int) -> dict[str, Any]:
        names, parts = self.declared.names, ENGINE.pod_contribution(self.declared, number)
        labels = {**parts.labels, INSTANCE_LABEL: str(number)}
        container = {
            **plain(parts.server),
            "resources": plain(self.declared.pod_settings.resources),
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": parts.labels},
        }
        pod = {
            "serviceAccountName": names.service_account.name,
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": parts.grace_seconds,
            "topologySpreadConstraints": [spread],
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
                *(plain(volume) for volume in parts.volumes),
                {"name": "data", "persistentVolumeClaim": {"claimName": names.data_pvc(number).name}},
                *(
                    [{"name": "wal", "persistentVolumeClaim": {"claimName": names.wal_pvc(number).name}}]
                    if self.declared.wal_size
                    else []
                ),
                {
                    "name": "shm",
                    "emptyDir": {"medium": "Memory", "sizeLimit": str(self.declared.pod_settings.shm_size)},
                },
            ],
        }
        spec = {
            "replicas": 1,
            "serviceName": names.headless_service.name,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        return self._object("apps/v1", "StatefulSet", names.statefulset(number).name, spec=spec)


def plain(part: Any) -> Any:
    """An apply configuration as JSON's values."""
    return json.loads(msgspec.json.encode(part))


def with_mode(cluster: PatroniCluster, mode: SynchronousMode) -> PatroniCluster:
    """The same cluster, in another mode of synchronous replication; applied by `configure`."""
    return replace(cluster, declared=replace(cluster.declared, synchronous=SynchronousReplication(mode=mode)))
