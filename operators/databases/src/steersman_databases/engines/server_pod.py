"""What the pods of every engine's instances have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from steersman.api.apply import core

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
    env: Sequence[core.EnvVar]
    ports: Sequence[core.ContainerPort]
    volume_mounts: Sequence[core.VolumeMount]


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
            core.EnvVar(
                name=name,
                value_from=core.EnvVarSource(field_ref=core.ObjectFieldSelector(field_path=path)),
            )
            for name, path in {**_FIELDS, **(fields or {})}.items()
        ],
        "ports": [core.ContainerPort(name=name, container_port=port, protocol="TCP") for name, port in ports.items()],
        "volume_mounts": [
            core.VolumeMount(name=name, mount_path=path, read_only=True)
            if path.startswith("/etc/")
            else core.VolumeMount(name=name, mount_path=path)
            for name, path in mounts.items()
        ],
    }


def server_volumes(cluster: ClusterView) -> Sequence[core.Volume]:
    """What is lost with the pod, and the certificates of the server and of its members to each other."""
    names = cluster.names
    return [
        core.Volume(name="tmp", empty_dir=core.EmptyDirVolumeSource(size_limit="1Gi")),
        # Group-readable: a server takes a key that is root's and readable by its own group.
        *(
            core.Volume(name=name, secret=core.SecretVolumeSource(secret_name=key.name, default_mode=0o440))
            for name, key in (("tls", names.server_certificate), ("peer", names.peer_certificate))
        ),
    ]
