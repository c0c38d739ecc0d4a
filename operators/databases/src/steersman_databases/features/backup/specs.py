"""Jobs of the images' programs, and their ConfigMaps. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from steersman.api.apply import batch, core, meta
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Pod
from steersman.meta import ObjectKey, is_true
from steersman_databases.api.backups.backup_common import BackupJobSettings
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.workload_identity import with_identity
from steersman_databases.specs.scheduling import auxiliary_affinity, to_apply, with_scheduling
from steersman_databases.specs.statefulset import SERVER_UID

PROGRAM = "steersman-instance"
JOB_DOCUMENT = "job.json"
JOB_MOUNT = "/etc/steersman/job"
STORE_MOUNT = "/etc/steersman/backup"
CLIENT_CERTIFICATE_MOUNT = "/etc/steersman/backup-client"
RUN_MOUNT = "/run/steersman"
CONTAINER = "backup"
EXIT_CODE_REJECTED = 3
"""Exit code of the programs where another attempt changes nothing."""
_BACKOFF_LIMIT = 2
_MAX_RESULT_BYTES = 4096
_RESOURCES = core.ResourceRequirements(
    requests={"cpu": "50m", "memory": "64Mi"},
    limits={"memory": "512Mi"},
)
_DATA_PARAMETERS = ("lower_case_table_names", "innodb_page_size", "innodb_data_file_path")
_EARLIEST = datetime.min.replace(tzinfo=UTC)

Component = Literal["backup", "recovery", "verification", "dump", "restore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A Job that runs one program against the members of a cluster.

    Args:
        key: name of the Job and of its ConfigMap.
        document: what the program should do, ``job.json``. It has no secrets.
        volumes: besides the store, the client certificate, the document and scratch directories.
        mounts: where ``volumes`` are mounted, by name.
        deadline_seconds: after so long the Job fails. Defaults to never.
    """

    key: ObjectKey
    subcommand: Literal[
        "backup",
        "expire",
        "recover",
        "final-backup",
        "verify",
        "dump",
        "load",
        "restore",
        "plan",
        "changes",
        "check-import",
    ]
    image: str
    document: Mapping[str, object]
    settings: BackupJobSettings = field(default_factory=BackupJobSettings)
    volumes: Sequence[core.Volume] = ()
    mounts: Mapping[str, str] = field(default_factory=dict[str, str])
    component: Component = "backup"
    deadline_seconds: int | None = None

    @property
    def command(self) -> list[str]:
        """Command line of the program."""
        return [PROGRAM, self.subcommand, "--spec", f"{JOB_MOUNT}/{JOB_DOCUMENT}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """Result that a program wrote to its termination message. ``document`` is all of it."""

    ok: bool
    reason: str = ""
    message: str = ""
    document: Mapping[str, object] = field(default_factory=dict[str, object])


def data_parameters(cluster: DeclaredCluster) -> Mapping[str, Mapping[str, str]]:
    """Return the fields of ``job.json`` for a server with MySQL's data."""
    found = {name: cluster.parameters[name] for name in _DATA_PARAMETERS if name in cluster.parameters}
    return {"parameters": found} if found and cluster.engine == "mysql" else {}


def job_labels(cluster: DeclaredCluster, component: Component = "backup") -> dict[str, str]:
    """Labels of such Jobs, their pods and ConfigMaps. The NetworkPolicy admits pods by them."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": f"{cluster.engine}-{component}",
        f"{prefix}/instance": cluster.key.name,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": component,
    }


def job_config_map(cluster: DeclaredCluster, plan: JobPlan) -> core.ConfigMap:
    """The ConfigMap of a cluster's Job, see `config_map_of`."""
    return config_map_of(plan, job_labels(cluster, plan.component))


def config_map_of(plan: JobPlan, labels: Mapping[str, str]) -> core.ConfigMap:
    """The ConfigMap with the document. It is created once: a Job never reads another one's."""
    return core.ConfigMap(
        metadata=meta.ObjectMeta(name=plan.key.name, namespace=plan.key.namespace, labels=labels),
        data={JOB_DOCUMENT: msgspec.json.encode(plan.document, order="deterministic").decode()},
        immutable=True,
    )


def program_job(cluster: DeclaredCluster, plan: JobPlan) -> batch.Job:
    """The Job of a plan in its own pod, without owner."""
    return job_of(plan, job_labels(cluster, plan.component), cluster_pod(cluster, plan))


def job_of(
    plan: JobPlan, labels: Mapping[str, str], pod: core.PodSpec, *, own_labels: Mapping[str, str] | None = None
) -> batch.Job:
    """The Job of a plan that runs a pod, without an owner.

    Args:
        labels: of the Job and of its pods.
        own_labels: of the Job alone.
    """
    return batch.Job(
        metadata=meta.ObjectMeta(
            name=plan.key.name, namespace=plan.key.namespace, labels={**labels, **(own_labels or {})}
        ),
        spec=batch.JobSpec(
            backoff_limit=_BACKOFF_LIMIT,
            active_deadline_seconds=UNSET if plan.deadline_seconds is None else plan.deadline_seconds,
            # Two pods at once would lock each other out of the repository, or write one volume.
            pod_replacement_policy="Failed",
            pod_failure_policy=pod_failure_policy(CONTAINER),
            template=core.PodTemplateSpec(metadata=meta.TemplateMeta(labels=labels), spec=pod),
        ),
    )


def pod_failure_policy(container: str) -> batch.PodFailurePolicy:
    """Policy that fails a Job at once if its program refuses.

    Evictions do not count.
    """
    return batch.PodFailurePolicy(
        rules=[
            batch.PodFailurePolicyRule(
                action="FailJob",
                on_exit_codes=batch.PodFailurePolicyOnExitCodesRequirement(
                    container_name=container, operator="In", values=[EXIT_CODE_REJECTED]
                ),
            ),
            batch.PodFailurePolicyRule(
                action="Ignore",
                on_pod_conditions=[
                    batch.PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget", status="True")
                ],
            ),
        ]
    )


def job_state(job: Job) -> Literal["Running", "Complete", "Failed"]:
    """State of a Job."""
    if is_true(job.status.conditions, "Complete"):
        return "Complete"
    return "Failed" if is_true(job.status.conditions, "Failed") else "Running"


def result_of(job: Job, pods: Iterable[Pod]) -> JobResult | None:
    """Result of the newest pod of ``job`` that has written one."""
    own = [p for p in pods if (owner := p.controller_reference) is not None and owner.uid == job.metadata.uid]
    for pod in sorted(own, key=lambda p: p.metadata.creation_timestamp or _EARLIEST, reverse=True):
        for container in pod.status.container_statuses:
            terminated = container.state.terminated
            if terminated is not None and (result := read_result(terminated.message or "")) is not None:
                return result
    return None


def read_result(message: str) -> JobResult | None:
    """Parse the line that a program writes to its termination message. None if it is not one."""
    lines = message.strip().splitlines()
    if not lines or len(message) > _MAX_RESULT_BYTES:
        return None
    try:
        document: Any = msgspec.json.decode(lines[-1])
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    found = cast("dict[str, object]", document)
    return JobResult(
        ok=found.get("ok") is True,
        reason=_text(found.get("reason")),
        message=_text(found.get("message")),
        document=found,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def cluster_pod(cluster: DeclaredCluster, plan: JobPlan) -> core.PodSpec:
    """The pod of a plan with a cluster's store and client certificate."""
    settings, names = plan.settings, cluster.names
    secrets = {
        "store": (STORE_MOUNT, secret_volume("store", names.backup_secret)),
        "client": (CLIENT_CERTIFICATE_MOUNT, secret_volume("client", names.backup_client_certificate)),
    }
    declared = cluster.pod_settings
    pod = program_pod(plan, secrets, declared.image_pull_policy, names.service_account.name)
    pod = with_identity(pod, declared.identity)
    pods = dataclasses.replace(
        declared,
        node_selector=settings.node_selector or declared.node_selector,
        tolerations=settings.tolerations or declared.tolerations,
        priority_class=settings.priority_class_name or declared.priority_class,
    )
    return with_scheduling(pods, pod, auxiliary_affinity(pods))


def program_pod(
    plan: JobPlan,
    secrets: Mapping[str, tuple[str, core.Volume]],
    image_pull_policy: str,
    service_account: str | UnsetType = UNSET,
) -> core.PodSpec:
    """The pod of a program, without scheduling.

    Args:
        secrets: where volumes are mounted read-only, by name.
        service_account: defaults to that of the namespace, without its token.
    """
    resources = plan.settings.resources
    mounts = {
        "job": JOB_MOUNT,
        **{name: path for name, (path, _) in secrets.items()},
        "run": RUN_MOUNT,
        "tmp": "/tmp",  # noqa: S108
        **plan.mounts,
    }
    writable = {"run", "tmp", *plan.mounts}
    container = core.Container(
        name=CONTAINER,
        image=plan.image,
        image_pull_policy=image_pull_policy,
        command=plan.command,
        resources=_RESOURCES if resources is None else to_apply(resources, core.ResourceRequirements),
        security_context=core.SecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=core.Capabilities(drop=["ALL"]),
        ),
        volume_mounts=[
            core.VolumeMount(name=name, mount_path=path, read_only=UNSET if name in writable else True)
            for name, path in mounts.items()
        ],
    )
    return core.PodSpec(
        service_account_name=service_account,
        automount_service_account_token=False,
        enable_service_links=False,
        restart_policy="Never",
        termination_grace_period_seconds=30,
        security_context=core.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=SERVER_UID,
            run_as_group=SERVER_UID,
            fs_group=SERVER_UID,
            fs_group_change_policy="OnRootMismatch",
            seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
        ),
        containers=[container],
        volumes=[
            core.Volume(name="job", config_map=core.ConfigMapVolumeSource(name=plan.key.name)),
            *(volume for _, volume in secrets.values()),
            core.Volume(name="run", empty_dir=core.EmptyDirVolumeSource(medium="Memory", size_limit="16Mi")),
            core.Volume(name="tmp", empty_dir=core.EmptyDirVolumeSource()),
            *plan.volumes,
        ],
    )


def secret_volume(name: str, secret: ObjectKey) -> core.Volume:
    """Return an optional volume of a Secret."""
    # The programs report a missing file in a sentence; a missing volume would keep the pod from starting.
    source = core.SecretVolumeSource(secret_name=secret.name, optional=True, default_mode=0o440)
    return core.Volume(name=name, secret=source)
