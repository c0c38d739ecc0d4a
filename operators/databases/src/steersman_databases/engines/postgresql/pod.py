"""What runs in the pod of an instance: Patroni, with PostgreSQL below it."""

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
    HTTPGetActionApply,
    ObjectFieldSelectorApply,
    ProbeApply,
    SecretVolumeSourceApply,
    VolumeApply,
    VolumeMountApply,
)
from steersman_databases.engines.cluster import ClusterView, PodParts

from . import patroni

_START = "/usr/local/bin/steersman-start"
_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "POD_IPS": "status.podIPs",
    "NODE_NAME": "spec.nodeName",
}


class _Common(TypedDict):
    name: str
    image: str
    image_pull_policy: str
    env: Sequence[EnvVarApply]
    ports: Sequence[ContainerPortApply]
    volume_mounts: Sequence[VolumeMountApply]


def pod_parts(cluster: ClusterView, *, fenced: bool) -> PodParts:
    """The pod of any instance; its number makes no difference.

    A fenced one has the same volumes and starts nothing, so it has no probes, no labels of a member and no hook.
    """
    if fenced:
        return PodParts(
            server=ContainerApply(command=[_START, "fenced"], **_common(cluster)), volumes=_volumes(cluster)
        )
    server = ContainerApply(
        command=[_START],
        # Starting may include crash recovery or a copy of the data: hours, before it is given up.
        startup_probe=_probe("/liveness", period=1, failures=21600),
        # Only a Patroni that hangs is restarted.
        liveness_probe=_probe("/liveness", period=10, failures=6),
        # The holder of the lock, or a replica whose server answers, as long as nobody said `noloadbalance`; with the
        # API server away too.
        readiness_probe=_probe("/read-only", period=2, failures=3),
        **_common(cluster),
    )
    return PodParts(server=server, volumes=_volumes(cluster), labels=patroni.store_labels(cluster))


def _common(cluster: ClusterView) -> _Common:
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
        ],
        "ports": [
            ContainerPortApply(name="sql", container_port=patroni.PORT, protocol="TCP"),
            ContainerPortApply(name="patroni", container_port=patroni.REST_PORT, protocol="TCP"),
        ],
        "volume_mounts": _mounts(cluster),
    }


def _mounts(cluster: ClusterView) -> Sequence[VolumeMountApply]:
    return [
        VolumeMountApply(name="data", mount_path="/var/lib/steersman/data"),
        *([VolumeMountApply(name="wal", mount_path="/var/lib/steersman/wal")] if cluster.wal_size else []),
        VolumeMountApply(name="run", mount_path=patroni.RUN),
        VolumeMountApply(name="tmp", mount_path="/tmp"),  # noqa: S108
        VolumeMountApply(name="shm", mount_path="/dev/shm"),  # noqa: S108
        VolumeMountApply(name="patroni", mount_path="/etc/steersman/patroni", read_only=True),
        VolumeMountApply(name="tls", mount_path=patroni.TLS, read_only=True),
        VolumeMountApply(name="peer", mount_path=patroni.PEER, read_only=True),
    ]


def _volumes(cluster: ClusterView) -> Sequence[VolumeApply]:
    names = cluster.names
    return [
        VolumeApply(name="run", empty_dir=EmptyDirVolumeSourceApply(size_limit="16Mi")),
        VolumeApply(name="tmp", empty_dir=EmptyDirVolumeSourceApply(size_limit="1Gi")),
        VolumeApply(name="patroni", config_map=ConfigMapVolumeSourceApply(name=names.local_configuration.name)),
        # Group-readable: a server takes a key that is root's and readable by its own group.
        *(
            VolumeApply(name=name, secret=SecretVolumeSourceApply(secret_name=key.name, default_mode=0o440))
            for name, key in (("tls", names.server_certificate), ("peer", names.peer_certificate))
        ),
    ]


def _probe(path: str, *, period: int, failures: int) -> ProbeApply:
    return ProbeApply(
        http_get=HTTPGetActionApply(path=path, port="patroni", scheme="HTTPS"),
        period_seconds=period,
        # On a full machine an answer takes seconds; the default of 1 s would restart healthy servers.
        timeout_seconds=5,
        failure_threshold=failures,
    )
