"""What the pods of every engine's instances have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from steersman.api.apply.core_v1 import (
    ContainerPortApply,
    EmptyDirVolumeSourceApply,
    EnvVarApply,
    EnvVarSourceApply,
    ObjectFieldSelectorApply,
    SecretVolumeSourceApply,
    VolumeApply,
    VolumeMountApply,
)

from .cluster import ClusterView

_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "POD_IPS": "status.podIPs",
    "NODE_NAME": "spec.nodeName",
}


class ServerContainer(TypedDict):
    """A server's container, whatever it does."""

    name: str
    image: str
    image_pull_policy: str
    env: Sequence[EnvVarApply]
    ports: Sequence[ContainerPortApply]
    volume_mounts: Sequence[VolumeMountApply]


def server_container(
    cluster: ClusterView,
    ports: Mapping[str, int],
    mounts: Mapping[str, str],
    *,
    fields: Mapping[str, str] | None = None,
) -> ServerContainer:
    """The cluster's image, which knows its pod.

    Args:
        ports: by name.
        mounts: where each volume is; what is below ``/etc`` is read only.
        fields: of the pod, by the variables that tell them, beside those that all have.
    """
    return {
        "name": "server",
        "image": cluster.image,
        "image_pull_policy": cluster.pods.image_pull_policy,
        "env": [
            EnvVarApply(
                name=name,
                value_from=EnvVarSourceApply(field_ref=ObjectFieldSelectorApply(field_path=path)),
            )
            for name, path in {**_FIELDS, **(fields or {})}.items()
        ],
        "ports": [ContainerPortApply(name=name, container_port=port, protocol="TCP") for name, port in ports.items()],
        "volume_mounts": [
            VolumeMountApply(name=name, mount_path=path, read_only=True)
            if path.startswith("/etc/")
            else VolumeMountApply(name=name, mount_path=path)
            for name, path in mounts.items()
        ],
    }


def server_volumes(cluster: ClusterView) -> Sequence[VolumeApply]:
    """What is lost with the pod, and the certificates of the server and of its members to each other."""
    names = cluster.names
    return [
        VolumeApply(name="tmp", empty_dir=EmptyDirVolumeSourceApply(size_limit="1Gi")),
        # Group-readable: a server takes a key that is root's and readable by its own group.
        *(
            VolumeApply(name=name, secret=SecretVolumeSourceApply(secret_name=key.name, default_mode=0o440))
            for name, key in (("tls", names.server_certificate), ("peer", names.peer_certificate))
        ),
    ]
