"""Objects of read replicas: StatefulSets, PVCs, and one ConfigMap.

Their pods have the label of members, by which the Services -ro and -r, the NetworkPolicy and the PodMonitor
select them. They are not members to Patroni, which also compares `app.kubernetes.io/instance`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from steersman.api.apply import apps, core, meta
from steersman.api.apps_v1 import StatefulSet
from steersman.meta import ObjectKey, Quantity
from steersman_databases.cluster.rules.pod_hashes import auxiliary_hash
from steersman_databases.cluster.state import RESTART_HASH
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines.cluster_engine import DeclaredCluster, PodContribution
from steersman_databases.engines.naming import CLUSTER_LABEL, READ_REPLICA_LABEL, ROLE_LABEL, VERSION_LABEL
from steersman_databases.engines.postgresql.ha import patroni
from steersman_databases.engines.server_pod import (
    QUERIES_PATH,
    ServerContainer,
    agent_container,
    server_container,
    server_volumes,
)
from steersman_databases.specs.job_hash import POD_HASH, job_hash
from steersman_databases.specs.scheduling import anti_affinity, auxiliary_affinity, topology_spread
from steersman_databases.specs.statefulset import InstanceSettings, instance_pod

COMPONENT = "read-replica"
_CONFIGURATION = "/etc/steersman/read-replica"
_PROGRAM = "steersman-instance"


def read_replica_labels(cluster: DeclaredCluster, number: int) -> dict[str, str]:
    """Return the labels of the objects of one read replica."""
    return {**_group_labels(cluster), READ_REPLICA_LABEL: str(number)}


def _group_labels(cluster: DeclaredCluster) -> dict[str, str]:
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": cluster.engine,
        f"{prefix}/instance": cluster.names.read_replica_group,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": COMPONENT,
        f"{prefix}/part-of": cluster.key.name,
    }


def read_replica_configuration(
    cluster: DeclaredCluster, settings: Mapping[str, Any], max_lag_seconds: float
) -> core.ConfigMap:
    """Return the ConfigMap with the configuration of their servers.

    The program reloads it when it changes.

    Args:
        settings: the configuration that the members use. It has no value that a server refused.
    """
    key, service, server = (
        cluster.names.read_replica_configuration,
        cluster.names.service("rw"),
        settings["postgresql"],
    )
    declaration = {
        "host": f"{service.name}.{service.namespace}.svc.{cluster.cluster_domain}",
        "port": patroni.PORT,
        "parameters": dict(server["parameters"]),
        "hba": list(server["pg_hba"]),
        "ident": list(server["pg_ident"]),
        "maxLagSeconds": max_lag_seconds,
    }
    return core.ConfigMap(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=_group_labels(cluster)),
        data={"declaration.json": json.dumps(declaration, indent=2, sort_keys=True)},
    )


def read_replica_volume(cluster: DeclaredCluster, number: int) -> core.PersistentVolumeClaim:
    """Return the PVC of a read replica. Its WAL has no volume of its own."""
    key = cluster.names.read_replica_pvc(number)
    return core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=read_replica_labels(cluster, number)),
        spec=core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            storage_class_name=UNSET if cluster.storage_class is None else cluster.storage_class,
            resources=core.VolumeResourceRequirements(requests={"storage": str(volume_size(cluster))}),
        ),
    )


def volume_size(cluster: DeclaredCluster) -> Quantity:
    """Return the size of a read replica's volume."""
    if cluster.wal_size is None:
        return cluster.storage_size
    return Quantity(str(int(cluster.storage_size.value + cluster.wal_size.value)))


def read_replica_statefulset(
    cluster: DeclaredCluster, number: int, *, image: str, replicas: int = 1
) -> apps.StatefulSet:
    """Return the StatefulSet of a read replica.

    Args:
        image: of its containers.
        replicas: 0 if it runs no pod.
    """
    key, labels = cluster.names.read_replica(number), read_replica_labels(cluster, number)
    pod = _pod(cluster, number, image)
    return apps.StatefulSet(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels),
        spec=apps.StatefulSetSpec(
            replicas=replicas,
            pod_management_policy="Parallel",
            update_strategy=apps.StatefulSetUpdateStrategy(type="OnDelete"),
            service_name=cluster.names.headless_service.name,
            selector=meta.LabelSelector(match_labels=labels),
            template=core.PodTemplateSpec(
                metadata=meta.TemplateMeta(
                    labels={
                        **cluster.pod_settings.labels,
                        **labels,
                        VERSION_LABEL: cluster.version,
                        CLUSTER_LABEL: cluster.key.name,
                        ROLE_LABEL: "replica",
                    },
                    annotations={
                        **cluster.pod_settings.annotations,
                        **job_hash(pod),
                        RESTART_HASH: auxiliary_hash(cluster, image),
                    },
                ),
                spec=pod,
            ),
        ),
    )


def is_unrequested(present: StatefulSet, desired: apps.StatefulSet) -> bool:
    """Return True if only the operator's part of the template differs."""
    spec = desired.spec
    assert not isinstance(spec, UnsetType) and not isinstance(spec.template, UnsetType)
    metadata, recorded = spec.template.metadata, present.spec.template.metadata.annotations
    assert not isinstance(metadata, UnsetType) and not isinstance(metadata.annotations, UnsetType)
    return (
        spec.replicas == present.spec.replicas
        and metadata.annotations[RESTART_HASH] == recorded.get(RESTART_HASH)
        and metadata.annotations[POD_HASH] != recorded.get(POD_HASH)
    )


def _pod(cluster: DeclaredCluster, number: int, image: str) -> core.PodSpec:
    """Return the pod of an instance with another program and another volume."""
    server = _server_container(cluster)
    parts = PodContribution(
        server=core.Container(
            command=[_PROGRAM, "read-replica"],
            # It responds from its start on, while it copies as well.
            liveness_probe=_probe("/liveness", period=10, failures=6),
            readiness_probe=_probe("/readiness", period=2, failures=2),
            **server,
        ),
        agent=agent_container(server, "read-replica", {}),
    )
    pods = cluster.pod_settings
    pod = instance_pod(cluster, InstanceSettings(ordinal=0, image=image), parts)
    assert not isinstance(pod.volumes, UnsetType)
    own = [volume for volume in pod.volumes if volume.name not in ("data", "wal")]
    group = meta.LabelSelector(match_labels=_group_labels(cluster))
    members = meta.LabelSelector(match_labels={CLUSTER_LABEL: cluster.key.name})
    return replace(
        pod,
        # It changes nothing in Kubernetes.
        automount_service_account_token=False,
        volumes=[_claimed(cluster.names.read_replica_pvc(number)), *own, *_volumes(cluster)],
        affinity=auxiliary_affinity(pods, pod_anti_affinity=anti_affinity(members)),
        topology_spread_constraints=topology_spread(
            [c for c in pods.topology_spread_constraints if not c.label_selector], group
        )
        or UNSET,
    )


def _server_container(cluster: DeclaredCluster) -> ServerContainer:
    mounts = {
        "data": "/var/lib/steersman/data",
        "run": patroni.RUN,
        "tmp": "/tmp",  # noqa: S108
        "shm": "/dev/shm",  # noqa: S108
        "read-replica": _CONFIGURATION,
        "queries": QUERIES_PATH,
        "tls": patroni.TLS,
        "peer": patroni.PEER,
    }
    return server_container(cluster, {"sql": patroni.PORT, "report": patroni.REST_PORT}, mounts)


def _volumes(cluster: DeclaredCluster) -> list[core.Volume]:
    configuration = core.ConfigMapVolumeSource(name=cluster.names.read_replica_configuration.name)
    return [
        core.Volume(name="run", empty_dir=core.EmptyDirVolumeSource(medium="Memory", size_limit="16Mi")),
        core.Volume(name="read-replica", config_map=configuration),
        # A read replica archives nothing.
        *(volume for volume in server_volumes(cluster) if volume.name != "backup"),
    ]


def _claimed(pvc: ObjectKey) -> core.Volume:
    source = core.PersistentVolumeClaimVolumeSource(claim_name=pvc.name)
    return core.Volume(name="data", persistent_volume_claim=source)


def _probe(path: str, *, period: int, failures: int) -> core.Probe:
    return core.Probe(
        http_get=core.HTTPGetAction(path=path, port="report", scheme="HTTPS"),
        period_seconds=period,
        timeout_seconds=5,
        failure_threshold=failures,
    )
