"""The Job that applies the initial configuration of a cluster's first database.

Its pods bear no label of the members: whatever bears one is a member to Patroni.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from steersman.api.apply.batch_v1 import (
    JobApply,
    JobSpecApply,
    PodFailurePolicyApply,
    PodFailurePolicyOnExitCodesRequirementApply,
    PodFailurePolicyRuleApply,
)
from steersman.api.apply.core_v1 import (
    CapabilitiesApply,
    ConfigMapProjectionApply,
    KeyToPathApply,
    PodSecurityContextApply,
    PodSpecApply,
    PodTemplateSpecApply,
    ProjectedVolumeSourceApply,
    ResourceRequirementsApply,
    SeccompProfileApply,
    SecretProjectionApply,
    SecurityContextApply,
    VolumeApply,
    VolumeProjectionApply,
)
from steersman.meta import ObjectMetaApply, Quantity
from steersman.meta.apply import TemplateMetaApply
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


def configuration_job(cluster: ClusterView, configurer: Configurer, sources: str) -> JobApply:
    """The Job. ``sources`` tells one state of the SQL from another."""
    key, labels = cluster.names.initial_job, configuration_labels(cluster)
    pod = _pod(cluster, configurer, labels)
    refused = PodFailurePolicyRuleApply(
        action="FailJob",
        on_exit_codes=PodFailurePolicyOnExitCodesRequirementApply(operator="In", values=configurer.refused),
    )
    return JobApply(
        metadata=ObjectMetaApply(
            name=key.name,
            namespace=key.namespace,
            labels=labels,
            annotations={SOURCES: sources, **pod_hash(pod)},
        ),
        spec=JobSpecApply(
            backoff_limit=_TRIES,
            pod_failure_policy=PodFailurePolicyApply(rules=[refused]),
            template=PodTemplateSpecApply(metadata=TemplateMetaApply(labels=labels), spec=pod),
        ),
    )


def _pod(cluster: ClusterView, configurer: Configurer, labels: Mapping[str, str]) -> PodSpecApply:
    container = replace(
        configurer.container,
        image=cluster.image,
        image_pull_policy=cluster.pods.image_pull_policy,
        termination_message_policy="FallbackToLogsOnError",
        resources=ResourceRequirementsApply(
            requests=_quantities(cpu="50m", memory="32Mi"), limits=_quantities(memory="256Mi")
        ),
        security_context=SecurityContextApply(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesApply(drop=["ALL"]),
        ),
    )
    application = SecretProjectionApply(
        name=cluster.names.application_secret.name, items=[KeyToPathApply(key="ca.crt", path="ca.crt")]
    )
    pod = PodSpecApply(
        restart_policy="Never",
        automount_service_account_token=False,
        enable_service_links=False,
        security_context=PodSecurityContextApply(
            run_as_non_root=True,
            run_as_user=_UID,
            run_as_group=_UID,
            fs_group=_UID,
            seccomp_profile=SeccompProfileApply(type="RuntimeDefault"),
        ),
        containers=[container],
        volumes=[
            _projected("sql", [_file(source, path) for source, path in configurer.paths.items()]),
            _projected("application", [VolumeProjectionApply(secret=application)]),
        ],
    )
    return placed(cluster.pods, pod, beside(cluster.pods))


def _projected(name: str, sources: list[VolumeProjectionApply]) -> VolumeApply:
    return VolumeApply(name=name, projected=ProjectedVolumeSourceApply(sources=sources, default_mode=0o440))


def _file(source: SqlSource, path: str) -> VolumeProjectionApply:
    item = KeyToPathApply(key=source.key, path=path)
    if source.kind == "Secret":
        return VolumeProjectionApply(secret=SecretProjectionApply(name=source.name, items=[item]))
    return VolumeProjectionApply(config_map=ConfigMapProjectionApply(name=source.name, items=[item]))


def _quantities(**quantities: str) -> dict[str, Quantity]:
    return {name: Quantity(quantity) for name, quantity in quantities.items()}
