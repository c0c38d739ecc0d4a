"""StatefulSet of the nodes, under the restricted Pod Security Standard."""

from __future__ import annotations

import hashlib

from msgspec import UNSET
from steersman.api.apply import apps, core, meta
from steersman.meta import decode_builtins, to_builtins

from redis_operator.api.v1.rediscluster import RedisCluster
from redis_operator.resources.names import PORT, VERSION_LABEL, ObjectNames, object_metadata, selector_labels

REVISION_LABEL = "controller-revision-hash"
"""Label in which the StatefulSet controller records the revision of a pod."""

# User ID of the Docker Hub image.
_REDIS_UID = 999
_PASSWORD_DIGEST_ANNOTATION = "cache.example.com/password"
_READINESS_COMMAND = 'REDISCLI_AUTH="$(cat /etc/redis/auth/password)" redis-cli -p 6379 ping | grep -qx PONG'


def statefulset(cluster: RedisCluster, config_map: str, password: str) -> apps.StatefulSet:
    """Return the StatefulSet without its replicas.

    The scale subresource changes the replicas, because it supports a precondition. The update strategy is
    ``OnDelete``: the operator deletes pods itself, because it knows the masters.
    """
    labels = selector_labels(cluster) | {VERSION_LABEL: cluster.spec.version}
    digest = hashlib.sha256(password.encode()).hexdigest()[:16]
    return apps.StatefulSet(
        metadata=object_metadata(cluster, ObjectNames(cluster.key).statefulset),
        spec=apps.StatefulSetSpec(
            service_name=ObjectNames(cluster.key).headless_service.name,
            pod_management_policy="Parallel",
            update_strategy=apps.StatefulSetUpdateStrategy(type="OnDelete"),
            # The volume of a removed node must not be used again.
            persistent_volume_claim_retention_policy=apps.StatefulSetPersistentVolumeClaimRetentionPolicy(
                when_scaled="Delete", when_deleted=cluster.spec.storage.when_deleted
            ),
            selector=meta.LabelSelector(match_labels=selector_labels(cluster)),
            template=core.PodTemplateSpec(
                metadata=meta.TemplateMeta(labels=labels, annotations={_PASSWORD_DIGEST_ANNOTATION: digest}),
                spec=_pod(cluster, config_map),
            ),
            volume_claim_templates=[_pvc_template(cluster)],
        ),
    )


def _pvc_template(cluster: RedisCluster) -> core.PersistentVolumeClaim:
    storage = cluster.spec.storage
    return core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(name="data"),
        spec=core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            storage_class_name=storage.storage_class_name or UNSET,
            resources=core.VolumeResourceRequirements(requests={"storage": storage.size}),
        ),
    )


def _pod(cluster: RedisCluster, config_map: str) -> core.PodSpec:
    secret = core.SecretVolumeSource(secret_name=ObjectNames(cluster.key).secret.name, default_mode=0o440)
    return core.PodSpec(
        automount_service_account_token=False,
        enable_service_links=False,
        termination_grace_period_seconds=60,
        security_context=core.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=_REDIS_UID,
            run_as_group=_REDIS_UID,
            fs_group=_REDIS_UID,
            fs_group_change_policy="OnRootMismatch",
            seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
        ),
        topology_spread_constraints=[
            core.TopologySpreadConstraint(
                max_skew=1,
                topology_key="kubernetes.io/hostname",
                when_unsatisfiable="ScheduleAnyway",
                label_selector=meta.LabelSelector(match_labels=selector_labels(cluster)),
            )
        ],
        containers=[_redis_container(cluster)],
        volumes=[
            core.Volume(name="config", config_map=core.ConfigMapVolumeSource(name=config_map)),
            core.Volume(name="auth", secret=secret),
        ],
    )


def _redis_container(cluster: RedisCluster) -> core.Container:
    resources = cluster.spec.resources
    pod_ip = core.EnvVarSource(field_ref=core.ObjectFieldSelector(field_path="status.podIP"))
    return core.Container(
        name="redis",
        image=f"{cluster.spec.repository}:{cluster.spec.version}",
        image_pull_policy="IfNotPresent",
        # Without this option, a node announces its previous address after its pod was recreated.
        command=["redis-server", "/etc/redis/config/redis.conf", "--cluster-announce-ip", "$(POD_IP)"],
        env=[core.EnvVar(name="POD_IP", value_from=pod_ip)],
        ports=[
            core.ContainerPort(name="redis", container_port=PORT, protocol="TCP"),
            core.ContainerPort(name="bus", container_port=PORT + 10000, protocol="TCP"),
        ],
        # A node that loads its data is alive but not ready.
        liveness_probe=core.Probe(
            tcp_socket=core.TCPSocketAction(port=PORT), period_seconds=10, timeout_seconds=10, failure_threshold=6
        ),
        readiness_probe=core.Probe(
            exec=core.ExecAction(command=["sh", "-c", _READINESS_COMMAND]), period_seconds=3, timeout_seconds=10
        ),
        resources=UNSET if resources is None else decode_builtins(to_builtins(resources), core.ResourceRequirements),
        security_context=core.SecurityContext(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=core.Capabilities(drop=["ALL"]),
        ),
        volume_mounts=[
            core.VolumeMount(name="data", mount_path="/data"),
            core.VolumeMount(name="config", mount_path="/etc/redis/config", read_only=True),
            core.VolumeMount(name="auth", mount_path="/etc/redis/auth", read_only=True),
        ],
    )
