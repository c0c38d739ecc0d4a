"""Job that applies the initial SQL of a cluster's first database.

Its pods have no label of the members, because Patroni treats each pod with such a label as a member.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from steersman.api.apply import batch, core, meta
from steersman.meta import Quantity
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines.cluster_engine import DeclaredCluster, PostInitRunner, SqlSource
from steersman_databases.specs.job_hash import job_hash
from steersman_databases.specs.scheduling import auxiliary_affinity, with_scheduling

SOURCES_HASH_ANNOTATION = "databases.steersman.dev/sql-sources-hash"
"""Annotation of the Job: hash of its ConfigMaps and Secrets.

A Job without it is recreated.
"""
_UID = 10001
# Failed connections are retried without a practical limit, in the end every few minutes.
_BACKOFF_LIMIT = 1000


def post_init_labels(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the labels of the Job and its pods."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": "mysql-client" if cluster.engine == "mysql" else "psql",
        f"{prefix}/instance": cluster.key.name,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": "initial-configuration",
    }


def post_init_job(cluster: DeclaredCluster, runner: PostInitRunner, sources: str) -> batch.Job:
    """Return the Job. `sources` identifies the state of the SQL."""
    key, labels = cluster.names.post_init_job, post_init_labels(cluster)
    pod = _pod(cluster, runner, labels)
    non_retryable = batch.PodFailurePolicyRule(
        action="FailJob",
        on_exit_codes=batch.PodFailurePolicyOnExitCodesRequirement(
            operator="In", values=runner.non_retryable_exit_codes
        ),
    )
    return batch.Job(
        metadata=meta.ObjectMeta(
            name=key.name,
            namespace=key.namespace,
            labels=labels,
            annotations={SOURCES_HASH_ANNOTATION: sources, **job_hash(pod)},
        ),
        spec=batch.JobSpec(
            backoff_limit=_BACKOFF_LIMIT,
            pod_failure_policy=batch.PodFailurePolicy(rules=[non_retryable]),
            template=core.PodTemplateSpec(metadata=meta.TemplateMeta(labels=labels), spec=pod),
        ),
    )


def _pod(cluster: DeclaredCluster, runner: PostInitRunner, labels: Mapping[str, str]) -> core.PodSpec:
    container = replace(
        runner.container,
        image=cluster.image,
        image_pull_policy=cluster.pod_settings.image_pull_policy,
        termination_message_policy="FallbackToLogsOnError",
        resources=core.ResourceRequirements(
            requests=_quantities(cpu="50m", memory="32Mi"), limits=_quantities(memory="256Mi")
        ),
        security_context=core.SecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=core.Capabilities(drop=["ALL"]),
        ),
    )
    application = core.SecretProjection(
        name=cluster.names.application_secret.name, items=[core.KeyToPath(key="ca.crt", path="ca.crt")]
    )
    pod = core.PodSpec(
        restart_policy="Never",
        automount_service_account_token=False,
        enable_service_links=False,
        security_context=core.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=_UID,
            run_as_group=_UID,
            fs_group=_UID,
            seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
        ),
        containers=[container],
        volumes=[
            _projected("sql", [_file(source, path) for source, path in runner.paths.items()]),
            _projected("application", [core.VolumeProjection(secret=application)]),
        ],
    )
    return with_scheduling(cluster.pod_settings, pod, auxiliary_affinity(cluster.pod_settings))


def _projected(name: str, sources: list[core.VolumeProjection]) -> core.Volume:
    return core.Volume(name=name, projected=core.ProjectedVolumeSource(sources=sources, default_mode=0o440))


def _file(source: SqlSource, path: str) -> core.VolumeProjection:
    item = core.KeyToPath(key=source.key, path=path)
    if source.kind == "Secret":
        return core.VolumeProjection(secret=core.SecretProjection(name=source.name, items=[item]))
    return core.VolumeProjection(config_map=core.ConfigMapProjection(name=source.name, items=[item]))


def _quantities(**quantities: str) -> dict[str, Quantity]:
    return {name: Quantity(quantity) for name, quantity in quantities.items()}
