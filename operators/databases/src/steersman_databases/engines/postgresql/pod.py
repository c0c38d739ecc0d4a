"""What runs in the pod of an instance: Patroni, with PostgreSQL below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steersman.api.apply import core
from steersman_databases.engines.cluster import ClusterView, PodParts
from steersman_databases.engines.cluster_names import VERSION_LABEL
from steersman_databases.engines.server_pod import ServerContainer, server_container, server_volumes

from . import patroni

_START = "/usr/local/bin/steersman-start"


def pod_parts(cluster: ClusterView, *, fenced: bool) -> PodParts:
    """The pod of any instance; its number makes no difference.

    A fenced one has the same volumes and starts nothing, so it has no probes, no labels of a member and no hook.
    """
    if fenced:
        return PodParts(
            server=core.Container(command=[_START, "fenced"], **_common(cluster)), volumes=_volumes(cluster)
        )
    server = core.Container(
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


def _common(cluster: ClusterView) -> ServerContainer:
    ports = {"sql": patroni.PORT, "patroni": patroni.REST_PORT}
    # Which an image of somebody's own need not be of.
    fields = {"DECLARED_VERSION": f"metadata.labels['{VERSION_LABEL}']"}
    return server_container(cluster, ports, _mounts(cluster), fields=fields)


def _mounts(cluster: ClusterView) -> Mapping[str, str]:
    return {
        "data": "/var/lib/steersman/data",
        **({"wal": "/var/lib/steersman/wal"} if cluster.wal_size else {}),
        "run": patroni.RUN,
        "tmp": "/tmp",  # noqa: S108
        "shm": "/dev/shm",  # noqa: S108
        "patroni": "/etc/steersman/patroni",
        "tls": patroni.TLS,
        "peer": patroni.PEER,
    }


def _volumes(cluster: ClusterView) -> Sequence[core.Volume]:
    return [
        core.Volume(name="run", empty_dir=core.EmptyDirVolumeSource(size_limit="16Mi")),
        core.Volume(
            name="patroni", config_map=core.ConfigMapVolumeSource(name=cluster.names.local_configuration.name)
        ),
        *server_volumes(cluster),
    ]


def _probe(path: str, *, period: int, failures: int) -> core.Probe:
    return core.Probe(
        http_get=core.HTTPGetAction(path=path, port="patroni", scheme="HTTPS"),
        period_seconds=period,
        # On a full machine an answer takes seconds; the default of 1 s would restart healthy servers.
        timeout_seconds=5,
        failure_threshold=failures,
    )
