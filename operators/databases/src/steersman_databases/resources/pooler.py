"""PgBouncer in front of a cluster: for each role a Deployment, its Service and its configuration.

The pods run the cluster's image, and bear no label of its members: whatever bears one is a member to Patroni.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET

from steersman.api.apply.apps_v1 import DeploymentApply, DeploymentSpecApply
from steersman.api.apply.core_v1 import (
    AffinityApply,
    CapabilitiesApply,
    ConfigMapApply,
    ConfigMapVolumeSourceApply,
    ContainerApply,
    ContainerPortApply,
    EmptyDirVolumeSourceApply,
    ExecActionApply,
    LifecycleApply,
    LifecycleHandlerApply,
    LocalObjectReferenceApply,
    PodAffinityTermApply,
    PodAntiAffinityApply,
    PodSecurityContextApply,
    PodSpecApply,
    PodTemplateSpecApply,
    ProbeApply,
    ResourceRequirementsApply,
    SeccompProfileApply,
    SecretVolumeSourceApply,
    SecurityContextApply,
    ServiceApply,
    ServicePortApply,
    ServiceSpecApply,
    TCPSocketActionApply,
    VolumeApply,
    VolumeMountApply,
    WeightedPodAffinityTermApply,
)
from steersman.api.apply.meta_v1 import LabelSelectorApply
from steersman.meta import ObjectKey, ObjectMetaApply, to_builtins
from steersman.meta.apply import TemplateMetaApply
from steersman_databases.api.cluster_parts import Pooler
from steersman_databases.clusters.keyring import pooler_certificate, pooler_services
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.postgresql import pgbouncer
from steersman_databases.resources.names import MANAGED_BY

PooledRole = Literal["rw", "ro"]
POOLER_LABEL = "databases.steersman.dev/pooler"
"""On poolers' pods: the role that they lead to."""
_UID = 10001
_CONFIGURATION_HASH = "databases.steersman.dev/configuration-hash"
# It answers, and was not left paused by somebody who went away: that would be for ever.
_LIVES = (
    f"told=$(psql -h {pgbouncer.RUN} -p {pgbouncer.PORT} -U postgres -AtXc 'SHOW STATE' {pgbouncer.CONSOLE}) "
    '&& case $told in *"paused|yes"*) exit 1 ;; esac'
)


def pooler_key(cluster: ClusterView, role: PooledRole) -> ObjectKey:
    """Deployment, Service and ConfigMap of one role."""
    return ObjectKey(cluster.key.namespace, pooler_services(cluster)[0 if role == "rw" else 1])


def pooler_labels(cluster: ClusterView, role: PooledRole) -> dict[str, str]:
    """What all objects of one pooler bear."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": "pgbouncer",
        f"{prefix}/instance": cluster.key.name,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": "pooler",
        POOLER_LABEL: role,
    }


def pooler_configuration(cluster: ClusterView, pooler: Pooler, role: PooledRole) -> ConfigMapApply:
    """What PgBouncer reads."""
    return ConfigMapApply(metadata=_metadata(cluster, role), data=_files(cluster, pooler, role))


def pooler_service(cluster: ClusterView, role: PooledRole) -> ServiceApply:
    """Where clients connect."""
    port = ServicePortApply(name="sql", port=pgbouncer.PORT, target_port="sql", protocol="TCP")
    return ServiceApply(
        metadata=_metadata(cluster, role),
        spec=ServiceSpecApply(type="ClusterIP", selector=pooler_labels(cluster, role), ports=[port]),
    )


def pooler_deployment(cluster: ClusterView, pooler: Pooler, role: PooledRole) -> DeploymentApply:
    """The pods. Another configuration is another template: they are replaced one by one."""
    labels = pooler_labels(cluster, role)
    text = repr(sorted(_files(cluster, pooler, role).items()))
    annotations = {_CONFIGURATION_HASH: hashlib.sha256(text.encode()).hexdigest()[:16]}
    return DeploymentApply(
        metadata=_metadata(cluster, role),
        spec=DeploymentSpecApply(
            replicas=pooler.replicas,
            selector=LabelSelectorApply(match_labels=labels),
            template=PodTemplateSpecApply(
                metadata=TemplateMetaApply(labels=labels, annotations=annotations),
                spec=_pod(cluster, pooler, role, labels),
            ),
        ),
    )


def _files(cluster: ClusterView, pooler: Pooler, role: PooledRole) -> dict[str, str]:
    service = cluster.names.service(role)
    return pgbouncer.files(
        pgbouncer.Pooling(
            host=f"{service.name}.{service.namespace}.svc.{cluster.cluster_domain}",
            mode=pooler.mode,
            parameters=pooler.parameters,
            tls_required=cluster.tls_required,
        )
    )


def _pod(cluster: ClusterView, pooler: Pooler, role: PooledRole, labels: Mapping[str, str]) -> PodSpecApply:
    apart = PodAffinityTermApply(
        topology_key="kubernetes.io/hostname", label_selector=LabelSelectorApply(match_labels=labels)
    )
    term = WeightedPodAffinityTermApply(weight=100, pod_affinity_term=apart)
    secrets = cluster.pods.image_pull_secrets
    return PodSpecApply(
        automount_service_account_token=False,
        enable_service_links=False,
        # A pooler that ends takes nobody new and waits for its clients.
        termination_grace_period_seconds=60,
        image_pull_secrets=[LocalObjectReferenceApply(name=s.name) for s in secrets] or UNSET,
        affinity=AffinityApply(
            pod_anti_affinity=PodAntiAffinityApply(preferred_during_scheduling_ignored_during_execution=[term])
        ),
        security_context=PodSecurityContextApply(
            run_as_non_root=True,
            run_as_user=_UID,
            run_as_group=_UID,
            fs_group=_UID,
            seccomp_profile=SeccompProfileApply(type="RuntimeDefault"),
        ),
        containers=[_container(cluster, pooler)],
        volumes=[
            VolumeApply(
                name="configuration",
                config_map=ConfigMapVolumeSourceApply(name=pooler_key(cluster, role).name),
            ),
            _secret("tls", cluster.names.server_certificate),
            _secret("login", pooler_certificate(cluster)),
            VolumeApply(name="run", empty_dir=EmptyDirVolumeSourceApply(size_limit="16Mi")),
        ],
    )


def _secret(name: str, key: ObjectKey) -> VolumeApply:
    return VolumeApply(name=name, secret=SecretVolumeSourceApply(secret_name=key.name, default_mode=0o440))


def _container(cluster: ClusterView, pooler: Pooler) -> ContainerApply:
    return ContainerApply(
        name="pgbouncer",
        image=cluster.image,
        image_pull_policy=cluster.pods.image_pull_policy,
        command=[pgbouncer.PROGRAM, f"{pgbouncer.CONFIGURATION}/pgbouncer.ini"],
        ports=[ContainerPortApply(name="sql", container_port=pgbouncer.PORT, protocol="TCP")],
        # Half a minute is far longer than a switchover takes; the operator ends its pauses itself.
        liveness_probe=ProbeApply(
            exec=ExecActionApply(command=["sh", "-c", _LIVES]),
            period_seconds=10,
            timeout_seconds=10,
            failure_threshold=3,
        ),
        readiness_probe=ProbeApply(
            tcp_socket=TCPSocketActionApply(port="sql"), period_seconds=2, timeout_seconds=5, failure_threshold=3
        ),
        # Endpoints are taken out everywhere before it refuses anybody.
        lifecycle=LifecycleApply(pre_stop=LifecycleHandlerApply(exec=ExecActionApply(command=["sleep", "5"]))),
        resources=_resources(pooler),
        security_context=SecurityContextApply(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesApply(drop=["ALL"]),
        ),
        volume_mounts=[
            VolumeMountApply(name="configuration", mount_path=pgbouncer.CONFIGURATION, read_only=True),
            VolumeMountApply(name="tls", mount_path=pgbouncer.TLS, read_only=True),
            VolumeMountApply(name="login", mount_path=pgbouncer.LOGIN, read_only=True),
            VolumeMountApply(name="run", mount_path=pgbouncer.RUN),
        ],
    )


def _resources(pooler: Pooler) -> ResourceRequirementsApply:
    declared = pooler.resources
    if declared is None:
        return ResourceRequirementsApply(requests={"cpu": "50m", "memory": "64Mi"}, limits={"memory": "128Mi"})
    return msgspec.convert(to_builtins(declared), ResourceRequirementsApply)


def _metadata(cluster: ClusterView, role: PooledRole) -> ObjectMetaApply:
    key = pooler_key(cluster, role)
    return ObjectMetaApply(name=key.name, namespace=key.namespace, labels=pooler_labels(cluster, role))
