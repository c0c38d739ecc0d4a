"""The Jobs of a major upgrade: one looks what its image has, the other upgrades the primary's volume.

Their pods bear no label of an instance or a member: they are neither.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from steersman.api.apply import batch, core, meta
from steersman_databases.clusters.upgrade import DECLARED, Due
from steersman_databases.engines.cluster import ClusterView, InUse, PodParts
from steersman_databases.engines.cluster_names import INSTANCE_LABEL, VERSION_LABEL
from steersman_databases.resources.instance import InstancePlan, instance_pod
from steersman_databases.resources.made_for import pod_hash
from steersman_databases.resources.names import MANAGED_BY

ASKED = "databases.steersman.dev/asked"
"""On the Job that looks: a hash of what it was asked for."""
JOB_LABEL = "batch.kubernetes.io/job-name"
_CONTAINER = "upgrade"
REFUSED = 3
"""What the container of such a Job ends with where trying again would change nothing."""


def upgrade_job(cluster: ClusterView, instance: int, due: Due, parts: PodParts) -> batch.Job:
    """Upgrades the volumes of an instance. It is made suspended, and let run when no server is left.

    Args:
        parts: the pod of the instance as it is when no server starts in it.
    """
    plan = InstancePlan(number=instance, image=due.image, fenced=True)
    pod = _once(instance_pod(cluster, plan, parts), ["/usr/local/bin/steersman-start", "upgrade"])
    return batch.Job(
        metadata=meta.ObjectMeta(
            name=cluster.names.upgrade_job.name,
            namespace=cluster.key.namespace,
            labels={**upgrade_labels(cluster), INSTANCE_LABEL: str(instance), VERSION_LABEL: due.version},
            annotations={DECLARED: due.declared, **pod_hash(pod)},
        ),
        spec=_spec(cluster, pod, suspend=True),
    )


def check_job(cluster: ClusterView, due: Due, used: InUse, parts: PodParts) -> batch.Job:
    """Looks whether the image has what the databases use; it touches no volume."""
    plan = InstancePlan(number=0, image=due.image, fenced=True)
    asked = [
        *(word for name in used.extensions for word in ("--extension", name)),
        *(word for name in used.libraries for word in ("--library", name)),
    ]
    pod = _once(instance_pod(cluster, plan, parts), ["/usr/local/bin/steersman-upgrade", "offers", *asked])
    server = msgspec.structs.replace(_container(pod), volume_mounts=UNSET)
    return batch.Job(
        metadata=meta.ObjectMeta(
            name=cluster.names.upgrade_check_job.name,
            namespace=cluster.key.namespace,
            labels=upgrade_labels(cluster),
            annotations={ASKED: asked_of(due, used)},
        ),
        spec=_spec(cluster, msgspec.structs.replace(pod, containers=[server], volumes=UNSET), suspend=False),
    )


def asked_of(due: Due, used: InUse) -> str:
    """Tells one question of `check_job` from another."""
    said = [due.image, due.generation, sorted(used.extensions), sorted(used.libraries)]
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:16]


def upgrade_labels(cluster: ClusterView) -> Mapping[str, str]:
    """What the Jobs of an upgrade and their pods bear."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": f"{cluster.engine}-upgrade",
        f"{prefix}/instance": cluster.key.name,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": "upgrade",
    }


def _container(pod: core.PodSpec) -> core.Container:
    assert not isinstance(pod.containers, UnsetType)
    return pod.containers[0]


def _once(pod: core.PodSpec, command: Sequence[str]) -> core.PodSpec:
    ran = msgspec.structs.replace(
        _container(pod),
        name=_CONTAINER,
        command=command,
        ports=UNSET,
        # What was refused says so there; what was killed has only its log.
        termination_message_policy="FallbackToLogsOnError",
    )
    return msgspec.structs.replace(pod, restart_policy="Never", containers=[ran], termination_grace_period_seconds=30)


def _spec(cluster: ClusterView, pod: core.PodSpec, *, suspend: bool) -> batch.JobSpec:
    return batch.JobSpec(
        suspend=suspend,
        # What is no refusal is tried again after 10, 20, 40 and 80 seconds: nobody is served meanwhile.
        backoff_limit=4,
        # Two at once on one volume would wait for each other.
        pod_replacement_policy="Failed",
        pod_failure_policy=batch.PodFailurePolicy(
            rules=[
                # What it refuses it would refuse again; a pod that was evicted tells nothing.
                batch.PodFailurePolicyRule(
                    action="FailJob",
                    on_exit_codes=batch.PodFailurePolicyOnExitCodesRequirement(
                        container_name=_CONTAINER, operator="In", values=[REFUSED]
                    ),
                ),
                batch.PodFailurePolicyRule(
                    action="Ignore",
                    on_pod_conditions=[
                        batch.PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget", status="True")
                    ],
                ),
            ]
        ),
        template=core.PodTemplateSpec(metadata=meta.TemplateMeta(labels=upgrade_labels(cluster)), spec=pod),
    )
