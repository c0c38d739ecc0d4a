"""The Job that applies the initial configuration of a cluster's first database.

Its pods bear no label of the members: whatever bears one is a member to Patroni.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from steersman.api.apply import batch, core, meta
from steersman.meta import Quantity
from steersman_databases.engines.cluster import ClusterView, Configurer, SqlSource
from steersman_databases.resources.made_for import pod_hash
from steersman_databases.resources.names import MANAGED_BY
from steersman_databases.resources.placement import beside, placed

SOURCES = "databases.steersman.dev/sources"
"""On the Job: which state of its ConfigMaps and Secrets it was made for. Without it, it is made anew."""
_UID = 10001
# Connections that fail are tried again, in the end every few minutes, as long as it takes.
_TRIES = 1000


def configuration_labels(cluster: ClusterView) -> dict[str, str]:
    """What the Job and its pods bear."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": "mysql-client" if cluster.engine == "mysql" else "psql",
        f"{prefix}/instance": cluster.key.name,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": "initial-configuration",
    }


def configuration_job(cluster: ClusterView, configurer: Configurer, sources: str) -> batch.Job:
    """The Job. ``sources`` tells one state of the SQL from another."""
    key, labels = cluster.names.initial_job, configuration_labels(cluster)
    pod = _pod(cluster, configurer, labels)
    refused = batch.PodFailurePolicyRule(
        action="FailJob",
        on_exit_codes=batch.PodFailurePolicyOnExitCodesRequirement(operator="In", values=configurer.refused),
    )
    return batch.Job(
        metadata=meta.ObjectMeta(
            name=key.name,
            namespace=key.namespace,
            labels=labels,
            annotations={SOURCES: sources, **pod_hash(pod)},
        ),
        spec=batch.JobSpec(
            backoff_limit=_TRIES,
            pod_failure_policy=batch.PodFailurePolicy(rules=[refused]),
            template=core.PodTemplateSpec(metadata=meta.TemplateMeta(labels=labels), spec=pod),
        ),
    )


def _pod(cluster: ClusterView, configurer: Configurer, labels: Mapping[str, str]) -> core.PodSpec:
    container = replace(
        configurer.container,
        image=cluster.image,
        image_pull_policy=cluster.pods.image_pull_policy,
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
            _projected("sql", [_file(source, path) for source, path in configurer.paths.items()]),
            _projected("application", [core.VolumeProjection(secret=application)]),
        ],
    )
    return placed(cluster.pods, pod, beside(cluster.pods))


def _projected(name: str, sources: list[core.VolumeProjection]) -> core.Volume:
    return core.Volume(name=name, projected=core.ProjectedVolumeSource(sources=sources, default_mode=0o440))


def _file(source: SqlSource, path: str) -> core.VolumeProjection:
    item = core.KeyToPath(key=source.key, path=path)
    if source.kind == "Secret":
        return core.VolumeProjection(secret=core.SecretProjection(name=source.name, items=[item]))
    return core.VolumeProjection(config_map=core.ConfigMapProjection(name=source.name, items=[item]))


def _quantities(**quantities: str) -> dict[str, Quantity]:
    return {name: Quantity(quantity) for name, quantity in quantities.items()}
