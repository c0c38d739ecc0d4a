"""Jobs on the volumes of an instance without a server.

They run recoveries and final backups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import UnsetType

from steersman.api.apply import batch, core
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.errors import AlreadyExists
from steersman_databases.cluster.executor import CLUSTER_INDEX
from steersman_databases.cluster.status.pod_problems import PodProblem, problem_of
from steersman_databases.cluster.status.pod_rejections import find_pod_rejection
from steersman_databases.core.context import ClusterContext
from steersman_databases.engines.cluster_engine import DeclaredCluster, PodContribution
from steersman_databases.engines.naming import INSTANCE_LABEL
from steersman_databases.features.backup.specs import (
    CONTAINER,
    JOB_MOUNT,
    JobPlan,
    JobResult,
    job_config_map,
    job_labels,
    job_of,
    job_state,
    result_of,
)
from steersman_databases.features.major_upgrade.model import has_ended
from steersman_databases.specs.instance_job import instance_container, run_once
from steersman_databases.specs.statefulset import InstanceSettings, instance_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class JobObservation:
    """Observed state of a Job.

    Args:
        result: what its program reported last.
        problem: reason why no pod of it runs.
        runs: a pod of it has started and not ended.
    """

    state: Literal["Running", "Complete", "Failed"]
    result: JobResult | None = None
    problem: PodProblem | None = None
    runs: bool = False


def instance_job(cluster: DeclaredCluster, plan: JobPlan, ordinal: int, parts: PodContribution) -> batch.Job:
    """Return the Job of a plan on the volumes of an instance.

    It has no owner.

    Args:
        parts: the pod of the instance as it is when no server starts in it.
    """
    labels = job_labels(cluster, plan.component)
    settings = InstanceSettings(ordinal=ordinal, image=plan.image, fenced=True)
    pod = _with_mounts(run_once(instance_pod(cluster, settings, parts), CONTAINER, plan.command), plan)
    return job_of(plan, labels, pod, own_labels={INSTANCE_LABEL: str(ordinal)})


async def create_job(context: ClusterContext, plan: JobPlan, job: batch.Job) -> None:
    """Create a Job and its ConfigMap, both controlled by the cluster.

    Raises:
        ReconcileBlocked: a foreign object has the name.
    """
    await context.apply(ConfigMap, job_config_map(context.declared, plan))
    try:
        # Not applied: nothing of a Job can be changed.
        await context.client.create(job, owner=context.cluster)
    except AlreadyExists:
        await context.require_control(Job, await context.client.live.get(Job, job.key))
    else:
        context.emit_created(Job, job.key)


async def observe_job(context: ClusterContext, job: Job) -> JobObservation:
    """Observe a Job by its pods, or by Events without pods."""
    found = await context.client.list(Pod, index=(CLUSTER_INDEX, str(context.declared.key)))
    pods = [p for p in found if (o := p.controller_reference) is not None and o.uid == job.metadata.uid]
    active = [pod for pod in pods if not has_ended(pod)]
    state, result = job_state(job), result_of(job, pods)
    problem = next((p for pod in active if (p := problem_of(pod)) and p.reason != "InstanceCrashing"), None)
    if state == "Running" and not active and job.status.start_time is not None:
        rejection = await find_pod_rejection(context.client.live, job)
        problem = None if rejection is None else rejection.problem
    return JobObservation(state=state, result=result, problem=problem, runs=bool(active) and problem is None)


def _with_mounts(pod: core.PodSpec, plan: JobPlan) -> core.PodSpec:
    container = instance_container(pod)
    present = [] if isinstance(container.volume_mounts, UnsetType) else list(container.volume_mounts)
    mounts = {"job": JOB_MOUNT, **plan.mounts}
    added = [core.VolumeMount(name=name, mount_path=path, read_only=True) for name, path in mounts.items()]
    volumes = [] if isinstance(pod.volumes, UnsetType) else list(pod.volumes)
    document = core.Volume(name="job", config_map=core.ConfigMapVolumeSource(name=plan.key.name))
    return msgspec.structs.replace(
        pod,
        automount_service_account_token=False,
        containers=[msgspec.structs.replace(container, volume_mounts=[*present, *added])],
        volumes=[*volumes, document, *plan.volumes],
    )
