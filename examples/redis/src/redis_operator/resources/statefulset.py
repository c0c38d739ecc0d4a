"""StatefulSet of the nodes, under the restricted Pod Security Standard."""

from __future__ import annotations

import hashlib

from msgspec import UNSET
from steersman import ObjectMetaApply
from steersman.api.apply.apps_v1 import (
    StatefulSetApply,
    StatefulSetPersistentVolumeClaimRetentionPolicyApply,
    StatefulSetSpecApply,
    StatefulSetUpdateStrategyApply,
)
from steersman.api.apply.core_v1 import (
    CapabilitiesApply,
    ConfigMapVolumeSourceApply,
    ContainerApply,
    ContainerPortApply,
    EnvVarApply,
    EnvVarSourceApply,
    ExecActionApply,
    ObjectFieldSelectorApply,
    PersistentVolumeClaimApply,
    PersistentVolumeClaimSpecApply,
    PodSecurityContextApply,
    PodSpecApply,
    PodTemplateSpecApply,
    ProbeApply,
    ResourceRequirementsApply,
    SeccompProfileApply,
    SecretVolumeSourceApply,
    SecurityContextApply,
    TCPSocketActionApply,
    TopologySpreadConstraintApply,
    VolumeApply,
    VolumeMountApply,
    VolumeResourceRequirementsApply,
)
from steersman.api.apply.meta_v1 import LabelSelectorApply
from steersman.meta import TemplateMetaApply, decode_builtins, to_builtins

from redis_operator.api.v1.rediscluster import RedisCluster
from redis_operator.resources.names import PORT, VERSION_LABEL, ObjectNames, object_metadata, selector_labels

REVISION_LABEL = "controller-revision-hash"
"""Label in which the StatefulSet controller records the revision of a pod."""

# User ID of the Docker Hub image.
_REDIS_UID = 999
_PASSWORD_DIGEST_ANNOTATION = "cache.example.com/password"
_READINESS_COMMAND = 'REDISCLI_AUTH="$(cat /etc/redis/auth/password)" redis-cli -p 6379 ping | grep -qx PONG'


def statefulset(cluster: RedisCluster, config_map: str, password: str) -> StatefulSetApply:
    """Return the StatefulSet without its replicas.

    The scale subresource changes the replicas, because it supports a precondition. The update strategy is
    ``OnDelete``: the operator deletes pods itself, because it knows the masters.
    """
    labels = selector_labels(cluster) | {VERSION_LABEL: cluster.spec.version}
    digest = hashlib.sha256(password.encode()).hexdigest()[:16]
    return StatefulSetApply(
        metadata=object_metadata(cluster, ObjectNames(cluster.key).statefulset),
        spec=StatefulSetSpecApply(
            service_name=ObjectNames(cluster.key).headless_service.name,
            pod_management_policy="Parallel",
            update_strategy=StatefulSetUpdateStrategyApply(type="OnDelete"),
            # The volume of a removed node must not be used again.
            persistent_volume_claim_retention_policy=StatefulSetPersistentVolumeClaimRetentionPolicyApply(
                when_scaled="Delete", when_deleted=cluster.spec.storage.when_deleted
            ),
            selector=LabelSelectorApply(match_labels=selector_labels(cluster)),
            template=PodTemplateSpecApply(
                metadata=TemplateMetaApply(labels=labels, annotations={_PASSWORD_DIGEST_ANNOTATION: digest}),
                spec=_pod(cluster, config_map),
            ),
            volume_claim_templates=[_pvc_template(cluster)],
        ),
    )


def _pvc_template(cluster: RedisCluster) -> PersistentVolumeClaimApply:
    storage = cluster.spec.storage
    return PersistentVolumeClaimApply(
        metadata=ObjectMetaApply(name="data"),
        spec=PersistentVolumeClaimSpecApply(
            access_modes=["ReadWriteOnce"],
            storage_class_name=storage.storage_class_name or UNSET,
            resources=VolumeResourceRequirementsApply(requests={"storage": storage.size}),
        ),
    )


def _pod(cluster: RedisCluster, config_map: str) -> PodSpecApply:
    secret = SecretVolumeSourceApply(secret_name=ObjectNames(cluster.key).secret.name, default_mode=0o440)
    return PodSpecApply(
        automount_service_account_token=False,
        enable_service_links=False,
        termination_grace_period_seconds=60,
        security_context=PodSecurityContextApply(
            run_as_non_root=True,
            run_as_user=_REDIS_UID,
            run_as_group=_REDIS_UID,
            fs_group=_REDIS_UID,
            fs_group_change_policy="OnRootMismatch",
            seccomp_profile=SeccompProfileApply(type="RuntimeDefault"),
        ),
        topology_spread_constraints=[
            TopologySpreadConstraintApply(
                max_skew=1,
                topology_key="kubernetes.io/hostname",
                when_unsatisfiable="ScheduleAnyway",
                label_selector=LabelSelectorApply(match_labels=selector_labels(cluster)),
            )
        ],
        containers=[_redis_container(cluster)],
        volumes=[
            VolumeApply(name="config", config_map=ConfigMapVolumeSourceApply(name=config_map)),
            VolumeApply(name="auth", secret=secret),
        ],
    )


def _redis_container(cluster: RedisCluster) -> ContainerApply:
    resources = cluster.spec.resources
    pod_ip = EnvVarSourceApply(field_ref=ObjectFieldSelectorApply(field_path="status.podIP"))
    return ContainerApply(
        name="redis",
        image=f"{cluster.spec.repository}:{cluster.spec.version}",
        image_pull_policy="IfNotPresent",
        # Without this option, a node announces its previous address after its pod was recreated.
        command=["redis-server", "/etc/redis/config/redis.conf", "--cluster-announce-ip", "$(POD_IP)"],
        env=[EnvVarApply(name="POD_IP", value_from=pod_ip)],
        ports=[
            ContainerPortApply(name="redis", container_port=PORT, protocol="TCP"),
            ContainerPortApply(name="bus", container_port=PORT + 10000, protocol="TCP"),
        ],
        # A node that loads its data is alive but not ready.
        liveness_probe=ProbeApply(
            tcp_socket=TCPSocketActionApply(port=PORT), period_seconds=10, timeout_seconds=10, failure_threshold=6
        ),
        readiness_probe=ProbeApply(
            exec=ExecActionApply(command=["sh", "-c", _READINESS_COMMAND]), period_seconds=3, timeout_seconds=10
        ),
        resources=UNSET if resources is None else decode_builtins(to_builtins(resources), ResourceRequirementsApply),
        security_context=SecurityContextApply(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesApply(drop=["ALL"]),
        ),
        volume_mounts=[
            VolumeMountApply(name="data", mount_path="/data"),
            VolumeMountApply(name="config", mount_path="/etc/redis/config", read_only=True),
            VolumeMountApply(name="auth", mount_path="/etc/redis/auth", read_only=True),
        ],
    )
