"""Pod of a PostgreSQL instance: Patroni with PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steersman.api.apply import core
from steersman_databases.engines.cluster_engine import DeclaredCluster, PodContribution
from steersman_databases.engines.naming import VERSION_LABEL
from steersman_databases.engines.server_pod import (
    QUERIES_PATH,
    STORE_PATH,
    ServerContainer,
    agent_container,
    server_container,
    server_volumes,
)

from .ha import patroni

_START = "/usr/local/bin/steersman-start"
BACKUP_PORT = 8432
"""pgBackRest's server with TLS, from which backup Jobs read the data."""


def pod_contribution(cluster: DeclaredCluster, *, fenced: bool) -> PodContribution:
    """The pod of any instance; its number makes no difference.

    A fenced one has the same volumes and starts nothing, so it has no probes, no labels of a member and no hook.
    """
    if fenced:
        return PodContribution(
            server=core.Container(command=[_START, "fenced"], **_server_container(cluster)), volumes=_volumes(cluster)
        )
    server = core.Container(
        command=[_START],
        # Starting may include crash recovery or a copy of the data: hours, before it is given up.
        startup_probe=_probe("/liveness", period=1, failures=21600),
        # Only a Patroni that hangs is restarted.
        liveness_probe=_probe("/liveness", period=10, failures=6),
        # Ready are the leader, and replicas that respond and lack the tag `noloadbalance`. It does not depend on the
        # API server.
        readiness_probe=_probe("/read-only", period=2, failures=3),
        **_server_container(cluster),
    )
    return PodContribution(
        server=server,
        agent=agent_container(_server_container(cluster), "postgresql", {"backup": BACKUP_PORT}),
        volumes=_volumes(cluster),
        labels=patroni.dcs_labels(cluster),
    )


def _server_container(cluster: DeclaredCluster) -> ServerContainer:
    ports = {"sql": patroni.PORT, "patroni": patroni.REST_PORT}
    # A custom image may have another version.
    fields = {"DECLARED_VERSION": f"metadata.labels['{VERSION_LABEL}']"}
    return server_container(cluster, ports, _mounts(cluster), fields=fields)


def _mounts(cluster: DeclaredCluster) -> Mapping[str, str]:
    return {
        "data": "/var/lib/steersman/data",
        **({"wal": "/var/lib/steersman/wal"} if cluster.wal_size else {}),
        "run": patroni.RUN,
        "tmp": "/tmp",  # noqa: S108
        "shm": "/dev/shm",  # noqa: S108
        "patroni": "/etc/steersman/patroni",
        "tls": patroni.TLS,
        "peer": patroni.PEER,
        "backup": STORE_PATH,
        "queries": QUERIES_PATH,
    }


def _volumes(cluster: DeclaredCluster) -> Sequence[core.Volume]:
    return [
        # In memory: pgBackRest's configuration in it has the credentials of the object store.
        core.Volume(name="run", empty_dir=core.EmptyDirVolumeSource(medium="Memory", size_limit="16Mi")),
        core.Volume(
            name="patroni", config_map=core.ConfigMapVolumeSource(name=cluster.names.local_configuration.name)
        ),
        *server_volumes(cluster),
    ]


def _probe(path: str, *, period: int, failures: int) -> core.Probe:
    return core.Probe(
        http_get=core.HTTPGetAction(path=path, port="patroni", scheme="HTTPS"),
        period_seconds=period,
        # On a busy node a response takes seconds. The default of 1 s would restart healthy servers.
        timeout_seconds=5,
        failure_threshold=failures,
    )
