"""The StatefulSet of one instance: a pod with a server on the instance's claims, under the restricted standard."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import UNSET

from steersman.api.apply import apps, core, meta
from steersman.meta import ObjectKey
from steersman_databases.clusters.observed import FENCED
from steersman_databases.clusters.rollout import hashes
from steersman_databases.engines.cluster import ClusterView, PodParts
from steersman_databases.engines.cluster_names import VERSION_LABEL
from steersman_databases.resources.labels import cluster_selector, instance_labels, instance_selector
from steersman_databases.resources.placement import apart, applied, placed, spread

SERVER_UID = 10001
"""The user that the images create; see images/README.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePlan:
    """What an instance should be like. ``replicas`` is 0 where it should run no pod."""

    number: int
    image: str
    fenced: bool = False
    replicas: int = 1


def instance_statefulset(cluster: ClusterView, instance: InstancePlan, parts: PodParts) -> apps.StatefulSet:
    """One replica, whose pod is only ever replaced when somebody deletes it."""
    key = cluster.names.statefulset(instance.number)
    labels = {**instance_labels(cluster, instance.number), VERSION_LABEL: cluster.version}
    return apps.StatefulSet(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels),
        spec=apps.StatefulSetSpec(
            replicas=instance.replicas,
            # In order, a pod that cannot start would never be replaced by one of a better template.
            pod_management_policy="Parallel",
            update_strategy=apps.StatefulSetUpdateStrategy(type="OnDelete"),
            service_name=cluster.names.headless_service.name,
            selector=meta.LabelSelector(match_labels=instance_selector(cluster, instance.number)),
            template=core.PodTemplateSpec(
                metadata=meta.TemplateMeta(
                    labels={**cluster.pods.labels, **labels, **parts.labels},
                    annotations=_annotations(cluster, instance, parts),
                ),
                spec=instance_pod(cluster, instance, parts),
            ),
        ),
    )


def _annotations(cluster: ClusterView, instance: InstancePlan, parts: PodParts) -> dict[str, str]:
    ours = {**hashes(cluster, instance.image), **({FENCED: "true"} if instance.fenced else {})}
    return {**cluster.pods.annotations, **parts.annotations, **ours}


def instance_pod(cluster: ClusterView, instance: InstancePlan, parts: PodParts) -> core.PodSpec:
    """What runs on the claims of an instance."""
    pod = core.PodSpec(
        service_account_name=cluster.names.account.name,
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
        containers=[_server(cluster, instance, parts)],
        volumes=[*_volumes(cluster, instance.number), *parts.volumes],
        topology_spread_constraints=spread(
            cluster.pods.topology_spread_constraints, meta.LabelSelector(match_labels=cluster_selector(cluster))
        )
        or UNSET,
    )
    return placed(cluster.pods, pod, _affinity(cluster))


def _server(cluster: ClusterView, instance: InstancePlan, parts: PodParts) -> core.Container:
    return msgspec.structs.replace(
        parts.server,
        image=instance.image,
        image_pull_policy=cluster.pods.image_pull_policy,
        resources=applied(cluster.pods.resources, core.ResourceRequirements),
        security_context=core.SecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=core.Capabilities(drop=["ALL"]),
        ),
    )


def _volumes(cluster: ClusterView, number: int) -> list[core.Volume]:
    names = cluster.names
    claims = [_claimed("data", names.data_claim(number))]
    if cluster.wal_size is not None:
        claims.append(_claimed("wal", names.wal_claim(number)))
    if cluster.pods.shm_size is None:
        return claims
    # Servers share memory between their workers here; the runtime's default of 64 MiB is too small.
    shared = core.EmptyDirVolumeSource(medium="Memory", size_limit=str(cluster.pods.shm_size))
    return [*claims, core.Volume(name="shm", empty_dir=shared)]


def _claimed(volume: str, claim: ObjectKey) -> core.Volume:
    source = core.PersistentVolumeClaimVolumeSource(claim_name=claim.name)
    return core.Volume(name=volume, persistent_volume_claim=source)


def _affinity(cluster: ClusterView) -> core.Affinity:
    """What is declared. Who only says which nodes has not said that a lost one may cost several instances."""
    declared = cluster.pods.affinity
    given = core.Affinity() if declared is None else applied(declared, core.Affinity)
    if declared is not None and declared.pod_anti_affinity is not None:
        return given
    ours = apart(meta.LabelSelector(match_labels=cluster_selector(cluster)))
    return msgspec.structs.replace(given, pod_anti_affinity=ours)
