"""Shared parts of the instance pods of all engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from steersman.api.apply import core
from steersman.api.core_v1 import ContainerStatus, Pod

from .cluster_engine import DeclaredCluster

AGENT_CONTAINER = "agent"
METRICS_PORT = 9187
"""Port of the agent's exporter, with TLS."""
STORE_PATH = "/etc/steersman/backup"
"""Mount path of the object store's Secret. It is optional: a new store restarts no pod."""
QUERIES_PATH = "/etc/steersman/queries"
"""Mount path of the ConfigMap with user queries. It is optional: new queries restart no pod."""

# The loop keeps the container running, hence the pod ready, while the agent restarts or where an older image has
# none. Process 1 ignores SIGTERM unless it has a handler.
_AGENT_LOOP = """trap 'kill -TERM $child; wait $child; exit 0' TERM INT
while :; do
  steersman-instance agent "$0" & child=$!; wait $child
  sleep 10 & child=$!; wait $child
done"""

_DOWNWARD_API_FIELDS = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "POD_IPS": "status.podIPs",
    "NODE_NAME": "spec.nodeName",
}


class ServerContainer(TypedDict):
    """A container with the server's image."""

    name: str
    image: str
    image_pull_policy: str
    env: Sequence[core.EnvVar]
    ports: Sequence[core.ContainerPort]
    volume_mounts: Sequence[core.VolumeMount]


def server_container(
    cluster: DeclaredCluster,
    ports: Mapping[str, int],
    mounts: Mapping[str, str],
    *,
    fields: Mapping[str, str] | None = None,
) -> ServerContainer:
    """Return a container of the cluster's image with its pod's fields.

    Args:
        ports: by name.
        mounts: paths by volume; those below ``/etc`` are read-only.
        fields: pod fields by environment variable, in addition to common ones.
    """
    return {
        "name": "server",
        "image": cluster.image,
        "image_pull_policy": cluster.pod_settings.image_pull_policy,
        "env": [
            core.EnvVar(
                name=name,
                value_from=core.EnvVarSource(field_ref=core.ObjectFieldSelector(field_path=path)),
            )
            for name, path in {**_DOWNWARD_API_FIELDS, **(fields or {})}.items()
        ],
        "ports": [core.ContainerPort(name=name, container_port=port, protocol="TCP") for name, port in ports.items()],
        "volume_mounts": [
            core.VolumeMount(name=name, mount_path=path, read_only=True)
            if path.startswith("/etc/")
            else core.VolumeMount(name=name, mount_path=path)
            for name, path in mounts.items()
        ],
    }


def agent_container(server: ServerContainer, engine: str, ports: Mapping[str, int]) -> core.Container:
    """Return the container of the agent, for backups and metrics.

    It shares the image and the volumes of the server. The server works the same while the agent is missing or
    broken.

    Args:
        engine: argument of ``steersman-instance agent``.
        ports: by name, without the one for metrics.
    """
    return core.Container(
        name=AGENT_CONTAINER,
        image=server["image"],
        image_pull_policy=server["image_pull_policy"],
        command=["/bin/sh", "-c", _AGENT_LOOP, engine],
        env=server["env"],
        ports=[
            core.ContainerPort(name=name, container_port=port, protocol="TCP")
            for name, port in {"metrics": METRICS_PORT, **ports}.items()
        ],
        volume_mounts=server["volume_mounts"],
    )


def server_statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    """Return the container statuses of a pod without the agent.

    Failures of the agent do not affect the server.
    """
    return tuple(each for each in pod.status.container_statuses if each.name != AGENT_CONTAINER)


def container_status(pod: Pod, name: str) -> ContainerStatus | None:
    """Return the status of a container, or None."""
    return next((each for each in pod.status.container_statuses if each.name == name), None)


def server_limits(pod: Pod) -> Iterator[Mapping[str, int | str]]:
    """Yield the server's limits in the spec and in the status.

    While the pod is resized in place, the spec has the new limits and the server runs with the previous ones.
    """
    for container in pod.spec.containers[:1]:
        yield container.resources.limits
        status = container_status(pod, container.name)
        if status is not None and status.resources is not None:
            yield {**container.resources.limits, **status.resources.limits}


def server_volumes(cluster: DeclaredCluster) -> Sequence[core.Volume]:
    """Return the volumes that the pods of all engines have."""
    names = cluster.names
    return [
        core.Volume(name="tmp", empty_dir=core.EmptyDirVolumeSource(size_limit="1Gi")),
        # Group-readable: a server takes a key that is root's and readable by its own group.
        *(
            core.Volume(name=name, secret=core.SecretVolumeSource(secret_name=key.name, default_mode=0o440))
            for name, key in (("tls", names.server_certificate), ("peer", names.peer_certificate))
        ),
        core.Volume(
            name="backup",
            secret=core.SecretVolumeSource(secret_name=names.backup_secret.name, default_mode=0o440, optional=True),
        ),
        core.Volume(name="queries", config_map=core.ConfigMapVolumeSource(name=names.queries.name, optional=True)),
    ]
