"""What runs in the pod of an instance: the agent, with MySQL below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from steersman.api.apply.core_v1 import (
    ConfigMapVolumeSourceApply,
    ContainerApply,
    ContainerPortApply,
    EmptyDirVolumeSourceApply,
    EnvVarApply,
    EnvVarSourceApply,
    ExecActionApply,
    ObjectFieldSelectorApply,
    ProbeApply,
    SecretVolumeSourceApply,
    VolumeApply,
    VolumeMountApply,
)

from ..cluster import ClusterView, PodParts
from ..cluster_names import INSTANCE_LABEL, MEMBER_OF_LABEL

PORT = 3306
_AGENT = "steersman-agent"
_PROBE = "steersman-member"
_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "POD_IP": "status.podIP",
    "POD_IPS": "status.podIPs",
    "NODE_NAME": "spec.nodeName",
    "CLUSTER_NAME": f"metadata.labels['{MEMBER_OF_LABEL}']",
    "INSTANCE": f"metadata.labels['{INSTANCE_LABEL}']",
}
_MOUNTS = {
    "data": "/var/lib/steersman/data",
    "run": "/run/steersman",
    "tmp": "/tmp",  # noqa: S108
    "mysql": "/etc/steersman/mysql",
    "tls": "/etc/steersman/tls",
    "peer": "/etc/steersman/peer",
}


class _Common(TypedDict):
    name: str
    image: str
    image_pull_policy: str
    env: Sequence[EnvVarApply]
    ports: Sequence[ContainerPortApply]
    volume_mounts: Sequence[VolumeMountApply]


def member_labels(cluster: ClusterView) -> dict[str, str]:
    """The labels by which members find each other, and their Services them."""
    return {
        "app.kubernetes.io/managed-by": "steersman-databases",
        "app.kubernetes.io/instance": cluster.key.name,
        MEMBER_OF_LABEL: cluster.key.name,
    }


def pod_parts(cluster: ClusterView, *, fenced: bool) -> PodParts:
    """The pod of any instance; its number is a label of it.

    A fenced one has the same volumes and starts nothing, so it has no probes and no labels of a member.
    """
    if fenced:
        server = ContainerApply(command=[_AGENT, "fenced"], **_common(cluster, member=False))
        return PodParts(server=server, volumes=_volumes(cluster))
    server = ContainerApply(
        command=[_AGENT],
        # Starting may include crash recovery or a copy of the data: hours, before it is given up.
        startup_probe=_probe("startup", period=1, failures=21600),
        # It asks after the agent and not after the server: who is slow is not made faster by being killed.
        liveness_probe=_probe("liveness", period=10, failures=6),
        readiness_probe=_probe("readiness", period=2, failures=3),
        **_common(cluster, member=True),
    )
    return PodParts(server=server, volumes=_volumes(cluster), labels=member_labels(cluster))


def _common(cluster: ClusterView, *, member: bool) -> _Common:
    return {
        "name": "server",
        "image": cluster.image,
        "image_pull_policy": cluster.pods.image_pull_policy,
        "env": [
            EnvVarApply(
                name=name,
                value_from=EnvVarSourceApply(field_ref=ObjectFieldSelectorApply(field_path=path)),
            )
            for name, path in _FIELDS.items()
            if member or name != "CLUSTER_NAME"
        ],
        "ports": [ContainerPortApply(name="sql", container_port=PORT, protocol="TCP")],
        "volume_mounts": [
            VolumeMountApply(name=name, mount_path=path, read_only=True)
            if path.startswith("/etc/")
            else VolumeMountApply(name=name, mount_path=path)
            for name, path in _MOUNTS.items()
        ],
    }


def _volumes(cluster: ClusterView) -> Sequence[VolumeApply]:
    names = cluster.names
    return [
        VolumeApply(name="run", empty_dir=EmptyDirVolumeSourceApply(medium="Memory", size_limit="16Mi")),
        VolumeApply(name="tmp", empty_dir=EmptyDirVolumeSourceApply(size_limit="1Gi")),
        VolumeApply(name="mysql", config_map=ConfigMapVolumeSourceApply(name=names.mysql_configuration.name)),
        *(
            VolumeApply(name=name, secret=SecretVolumeSourceApply(secret_name=key.name, default_mode=0o440))
            for name, key in (("tls", names.server_certificate), ("peer", names.peer_certificate))
        ),
    ]


def _probe(kind: str, *, period: int, failures: int) -> ProbeApply:
    return ProbeApply(
        exec=ExecActionApply(command=[_PROBE, kind]),
        period_seconds=period,
        # On a full machine a process takes seconds to start; the default of 1 s would restart healthy servers.
        timeout_seconds=10,
        failure_threshold=failures,
    )
