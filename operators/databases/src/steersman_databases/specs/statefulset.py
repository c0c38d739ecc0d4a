"""StatefulSet of one instance, under the restricted Pod Security Standard."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from steersman.api.apply import apps, core, meta
from steersman.meta import ObjectKey
from steersman_databases.cluster.rules.pod_hashes import template_hashes
from steersman_databases.cluster.state import FENCED_INSTANCE, IMAGE
from steersman_databases.core.labels import cluster_selector, instance_labels, instance_selector
from steersman_databases.engines.cluster_engine import DeclaredCluster, PodContribution
from steersman_databases.engines.naming import VERSION_LABEL
from steersman_databases.engines.workload_identity import with_identity
from steersman_databases.features.in_place_resize.model import declared_resources, is_guaranteed
from steersman_databases.specs.scheduling import anti_affinity, to_apply, topology_spread, with_scheduling

SERVER_UID = 10001
"""UID of the images. See images/README.md."""
_AGENT_MEMORY_MIB = 192
_GUARANTEED_AGENT_CPU = "250m"  # requested and limit, where the class Guaranteed needs a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """Settings of an instance. ``replicas`` is 0 if it should not run a pod."""

    ordinal: int
    image: str
    fenced: bool = False
    replicas: int = 1


def instance_statefulset(
    cluster: DeclaredCluster, instance: InstanceSettings, parts: PodContribution
) -> apps.StatefulSet:
    """Return a StatefulSet with one replica and update strategy OnDelete."""
    key = cluster.names.statefulset(instance.ordinal)
    labels = {**instance_labels(cluster, instance.ordinal), VERSION_LABEL: cluster.version}
    return apps.StatefulSet(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels),
        spec=apps.StatefulSetSpec(
            replicas=instance.replicas,
            # In order, a pod that cannot start would never be replaced by one of a better template.
            pod_management_policy="Parallel",
            update_strategy=apps.StatefulSetUpdateStrategy(type="OnDelete"),
            service_name=cluster.names.headless_service.name,
            selector=meta.LabelSelector(match_labels=instance_selector(cluster, instance.ordinal)),
            template=core.PodTemplateSpec(
                metadata=meta.TemplateMeta(
                    labels={**cluster.pod_settings.labels, **labels, **parts.labels},
                    annotations=_annotations(cluster, instance, parts),
                ),
                spec=instance_pod(cluster, instance, parts),
            ),
        ),
    )


def _annotations(cluster: DeclaredCluster, instance: InstanceSettings, parts: PodContribution) -> dict[str, str]:
    hashes = template_hashes(cluster, instance.image)
    fenced = {FENCED_INSTANCE: "true"} if instance.fenced else {}
    return {**cluster.pod_settings.annotations, **parts.annotations, **hashes, IMAGE: instance.image, **fenced}


def instance_pod(cluster: DeclaredCluster, instance: InstanceSettings, parts: PodContribution) -> core.PodSpec:
    """Return the pod of an instance."""
    pod = core.PodSpec(
        service_account_name=cluster.names.service_account.name,
        automount_service_account_token=not instance.fenced,
        enable_service_links=False,
        # A checkpoint of a busy server may take long; killing it costs a crash recovery.
        termination_grace_period_seconds=parts.grace_seconds,
        security_context=core.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=SERVER_UID,
            run_as_group=SERVER_UID,
            fs_group=SERVER_UID,
            fs_group_change_policy="OnRootMismatch",
            seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
        ),
        containers=_containers(cluster, instance, parts),
        volumes=[*_volumes(cluster, instance.ordinal), *parts.volumes],
        topology_spread_constraints=topology_spread(
            cluster.pod_settings.topology_spread_constraints,
            meta.LabelSelector(match_labels=cluster_selector(cluster)),
        )
        or UNSET,
    )
    pod = with_identity(pod, cluster.pod_settings.identity)
    return with_scheduling(cluster.pod_settings, pod, _affinity(cluster))


def _containers(cluster: DeclaredCluster, instance: InstanceSettings, parts: PodContribution) -> list[core.Container]:
    """Return the containers. The server is first, as the default of kubectl."""
    # Explicit requests: those that the API server derived from previous limits would stay in the template.
    server = to_apply(declared_resources(cluster), core.ResourceRequirements)
    containers = [_container(cluster, instance, parts.server, server)]
    if parts.agent is not None:
        containers.append(_container(cluster, instance, parts.agent, _agent_resources(cluster)))
    return containers


def _agent_resources(cluster: DeclaredCluster) -> core.ResourceRequirements:
    """Return the resources of the agent. They keep the server's QoS class."""
    # Each process of a backup holds up to 64 MiB of compressed data.
    memory = f"{_AGENT_MEMORY_MIB + 64 * cluster.backup_processes}Mi"
    if is_guaranteed(cluster.pod_settings.resources):
        guaranteed = {"cpu": _GUARANTEED_AGENT_CPU, "memory": memory}
        return core.ResourceRequirements(requests=guaranteed, limits=guaranteed)
    return core.ResourceRequirements(requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": memory})


def _container(
    cluster: DeclaredCluster,
    instance: InstanceSettings,
    container: core.Container,
    resources: core.ResourceRequirements,
) -> core.Container:
    return msgspec.structs.replace(
        container,
        image=instance.image,
        image_pull_policy=cluster.pod_settings.image_pull_policy,
        resources=resources,
        security_context=core.SecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=core.Capabilities(drop=["ALL"]),
        ),
    )


def _volumes(cluster: DeclaredCluster, ordinal: int) -> list[core.Volume]:
    names = cluster.names
    pvcs = [_pvc_volume("data", names.data_pvc(ordinal))]
    if cluster.wal_size is not None:
        pvcs.append(_pvc_volume("wal", names.wal_pvc(ordinal)))
    if cluster.pod_settings.shm_size is None:
        return pvcs
    # Servers share memory between their workers here; the runtime's default of 64 MiB is too small.
    run_volume = core.EmptyDirVolumeSource(medium="Memory", size_limit=str(cluster.pod_settings.shm_size))
    return [*pvcs, core.Volume(name="shm", empty_dir=run_volume)]


def _pvc_volume(volume: str, claim: ObjectKey) -> core.Volume:
    source = core.PersistentVolumeClaimVolumeSource(claim_name=claim.name)
    return core.Volume(name=volume, persistent_volume_claim=source)


def _affinity(cluster: DeclaredCluster) -> core.Affinity:
    """Return the declared affinity.

    A node affinity alone keeps the default podAntiAffinity: it does not accept the loss of several instances with
    a node.
    """
    declared = cluster.pod_settings.affinity
    declared_affinity = core.Affinity() if declared is None else to_apply(declared, core.Affinity)
    if declared is not None and declared.pod_anti_affinity is not None:
        return declared_affinity
    own_anti_affinity = anti_affinity(meta.LabelSelector(match_labels=cluster_selector(cluster)))
    return msgspec.structs.replace(declared_affinity, pod_anti_affinity=own_anti_affinity)
