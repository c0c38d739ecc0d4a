"""Pod of a MySQL instance: the agent with MySQL."""

from __future__ import annotations

from collections.abc import Sequence

from steersman.api.apply import core

from ..cluster_engine import DeclaredCluster, PodContribution
from ..naming import CLUSTER_LABEL, INSTANCE_LABEL
from ..server_pod import QUERIES_PATH, STORE_PATH, ServerContainer, agent_container, server_container, server_volumes

PORT = 3306
_AGENT = "steersman-agent"
_PROBE = "steersman-member"
_MEMBER_FIELDS = {
    "CLUSTER_NAME": f"metadata.labels['{CLUSTER_LABEL}']",
    "INSTANCE": f"metadata.labels['{INSTANCE_LABEL}']",
}
_MOUNTS = {
    "data": "/var/lib/steersman/data",
    "run": "/run/steersman",
    "tmp": "/tmp",  # noqa: S108
    "mysql": "/etc/steersman/mysql",
    "tls": "/etc/steersman/tls",
    "peer": "/etc/steersman/peer",
    "backup": STORE_PATH,
    "queries": QUERIES_PATH,
}


def member_labels(cluster: DeclaredCluster) -> dict[str, str]:
    """The labels by which members find each other, and their Services them."""
    return {
        "app.kubernetes.io/managed-by": "steersman-databases",
        "app.kubernetes.io/instance": cluster.key.name,
        CLUSTER_LABEL: cluster.key.name,
    }


def pod_contribution(cluster: DeclaredCluster, *, fenced: bool) -> PodContribution:
    """The pod of any instance; its number is a label of it.

    A fenced one has the same volumes and starts nothing, so it has no probes and no labels of a member.
    """
    if fenced:
        server = core.Container(command=[_AGENT, "fenced"], **_server_container(cluster, member=False))
        return PodContribution(server=server, volumes=_volumes(cluster))
    server = core.Container(
        command=[_AGENT],
        # Starting may include crash recovery or a copy of the data: hours, before it is given up.
        startup_probe=_probe("startup", period=1, failures=21600),
        # It asks after the agent and not after the server: who is slow is not made faster by being killed.
        liveness_probe=_probe("liveness", period=10, failures=6),
        readiness_probe=_probe("readiness", period=2, failures=3),
        **_server_container(cluster, member=True),
    )
    return PodContribution(
        server=server,
        agent=agent_container(_server_container(cluster, member=True), "mysql", {}),
        volumes=_volumes(cluster),
        labels=member_labels(cluster),
    )


def _server_container(cluster: DeclaredCluster, *, member: bool) -> ServerContainer:
    fields = _MEMBER_FIELDS if member else {"INSTANCE": _MEMBER_FIELDS["INSTANCE"]}
    return server_container(cluster, {"sql": PORT}, _MOUNTS, fields=fields)


def _volumes(cluster: DeclaredCluster) -> Sequence[core.Volume]:
    return [
        core.Volume(name="run", empty_dir=core.EmptyDirVolumeSource(medium="Memory", size_limit="16Mi")),
        core.Volume(name="mysql", config_map=core.ConfigMapVolumeSource(name=cluster.names.mysql_configuration.name)),
        *server_volumes(cluster),
    ]


def _probe(kind: str, *, period: int, failures: int) -> core.Probe:
    return core.Probe(
        exec=core.ExecAction(command=[_PROBE, kind]),
        period_seconds=period,
        # On a full machine a process takes seconds to start; the default of 1 s would restart healthy servers.
        timeout_seconds=10,
        failure_threshold=failures,
    )
