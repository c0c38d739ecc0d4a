"""StatefulSet of the servers, under the restricted Pod Security Standard."""

from __future__ import annotations

from msgspec import UNSET
from steersman import ObjectKey, SteersmanError
from steersman.api.apply import apps, core, meta
from steersman.api.core_v1 import EmptyDirVolumeSource
from steersman.errors import Invalid, TerminalError
from steersman.meta import decode_builtins, to_builtins

from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.resources.names import PORT, object_metadata, selector_labels, workload_key

DEFAULT_VERSION = "2.53.3"
DEFAULT_SERVICE_ACCOUNT = "default"
PROMETHEUS_CONTAINER = "prometheus"
RELOADER_CONTAINER = "reloader"
DATA_VOLUME = "data"

_IMMUTABLE = "updates to statefulset spec for fields other than"
_REPOSITORY = "quay.io/prometheus/prometheus"
_USER_ID, _GROUP_ID = 1000, 2000
_DIRECTORY = "/etc/prometheus"
_RELOAD = f"{_DIRECTORY}/declared/reload.sh"
# The kubelet replaces $$ by $.
_START = f'echo $$$$ >{_DIRECTORY}/running/prometheus.pid && exec prometheus "$@"'


class StorageChanged(TerminalError):
    """The StatefulSet cannot be updated to the declared storage."""

    @classmethod
    def or_same(cls, error: Invalid, key: ObjectKey) -> SteersmanError:
        """Return ``error``, or a StorageChanged if it is the reason. The volumes alone are immutable and declared."""
        if _IMMUTABLE not in str(error):
            return error
        return cls(
            f"spec.storage differs from the volume templates of StatefulSet {key}, which cannot be changed. Restore "
            f"it, or run 'kubectl delete statefulset {key.name} -n {key.namespace} --cascade=orphan', which keeps "
            "the pods. The operator then creates the StatefulSet again. Existing PVCs keep their size, and pods "
            "that get another volume begin without samples."
        )


def image_of(prometheus: Prometheus) -> str:
    """Return the image. ``spec.version`` may have the prefix ``v``."""
    version = (prometheus.spec.version or DEFAULT_VERSION).removeprefix("v")
    return prometheus.spec.image or f"{_REPOSITORY}:v{version}"


def server_arguments(prometheus: Prometheus) -> list[str]:
    """Return the arguments of Prometheus. The lifecycle API stays off."""
    spec = prometheus.spec
    retention = spec.retention or (None if spec.retention_size else "24h")
    return [
        f"--config.file={_DIRECTORY}/running/prometheus.yaml",
        "--storage.tsdb.path=/prometheus",
        *([f"--storage.tsdb.retention.time={retention}"] if retention else []),
        *([f"--storage.tsdb.retention.size={spec.retention_size}"] if spec.retention_size else []),
        # The label prometheus_replica is the name of the pod. Prometheus 3 expands labels by default.
        "--enable-feature=expand-external-labels",
    ]


def statefulset(prometheus: Prometheus) -> apps.StatefulSet:
    """Return the StatefulSet. A change of the configuration does not change it, so pods are not restarted."""
    return apps.StatefulSet(
        metadata=object_metadata(prometheus),
        spec=apps.StatefulSetSpec(
            replicas=prometheus.spec.replicas,
            service_name=workload_key(prometheus).name,
            pod_management_policy="Parallel",
            selector=meta.LabelSelector(match_labels=selector_labels(prometheus)),
            template=core.PodTemplateSpec(
                metadata=meta.TemplateMeta(
                    labels=selector_labels(prometheus),
                    annotations={"kubectl.kubernetes.io/default-container": PROMETHEUS_CONTAINER},
                ),
                spec=_pod(prometheus),
            ),
            volume_claim_templates=_pvc_templates(prometheus),
        ),
    )


def _pvc_templates(prometheus: Prometheus) -> list[core.PersistentVolumeClaim]:
    template = prometheus.spec.storage.volume_claim_template
    if template is None:
        return []
    spec = to_builtins(template.spec)
    spec.setdefault("accessModes", ["ReadWriteOnce"])
    metadata = meta.ObjectMeta(
        name=DATA_VOLUME,
        labels=dict(template.metadata.labels) or UNSET,
        annotations=dict(template.metadata.annotations) or UNSET,
    )
    return [core.PersistentVolumeClaim(metadata=metadata, spec=decode_builtins(spec, core.PersistentVolumeClaimSpec))]


def _pod(prometheus: Prometheus) -> core.PodSpec:
    storage = prometheus.spec.storage
    secret = core.SecretVolumeSource(secret_name=workload_key(prometheus).name, default_mode=0o440)
    volumes = [
        core.Volume(name="declared", secret=secret),
        core.Volume(name="running", empty_dir=core.EmptyDirVolumeSource()),
    ]
    if storage.volume_claim_template is None:
        empty_dir = decode_builtins(
            to_builtins(storage.empty_dir or EmptyDirVolumeSource()), core.EmptyDirVolumeSource
        )
        volumes.append(core.Volume(name=DATA_VOLUME, empty_dir=empty_dir))
    return core.PodSpec(
        service_account_name=prometheus.spec.service_account_name or DEFAULT_SERVICE_ACCOUNT,
        enable_service_links=False,
        # The reloader sends SIGHUP to Prometheus.
        share_process_namespace=True,
        # Prometheus writes its WAL to disk when it stops.
        termination_grace_period_seconds=600,
        security_context=core.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=_USER_ID,
            run_as_group=_GROUP_ID,
            fs_group=_GROUP_ID,
            fs_group_change_policy="OnRootMismatch",
            seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
        ),
        init_containers=[_script_container(prometheus, "configuration", "prepare")],
        containers=[_server_container(prometheus), _script_container(prometheus, RELOADER_CONTAINER, "watch")],
        volumes=volumes,
    )


def _server_container(prometheus: Prometheus) -> core.Container:
    resources = prometheus.spec.resources
    pod_name = core.EnvVarSource(field_ref=core.ObjectFieldSelector(field_path="metadata.name"))
    return core.Container(
        name=PROMETHEUS_CONTAINER,
        image=image_of(prometheus),
        image_pull_policy="IfNotPresent",
        command=["sh", "-c", _START, "prometheus", *server_arguments(prometheus)],
        env=[core.EnvVar(name="POD_NAME", value_from=pod_name)],
        ports=[core.ContainerPort(name="web", container_port=PORT, protocol="TCP")],
        # The replay of the WAL may take minutes.
        startup_probe=_probe("ready", period_seconds=15, failure_threshold=60),
        readiness_probe=_probe("ready", period_seconds=5, failure_threshold=3),
        liveness_probe=_probe("healthy", period_seconds=5, failure_threshold=6),
        resources=UNSET if resources is None else decode_builtins(to_builtins(resources), core.ResourceRequirements),
        security_context=_security_context(),
        volume_mounts=[*_configuration_mounts(), core.VolumeMount(name=DATA_VOLUME, mount_path="/prometheus")],
    )


def _script_container(prometheus: Prometheus, name: str, mode: str) -> core.Container:
    return core.Container(
        name=name,
        image=image_of(prometheus),
        image_pull_policy="IfNotPresent",
        command=["sh", _RELOAD, mode, f"{_DIRECTORY}/declared", f"{_DIRECTORY}/running"],
        security_context=_security_context(),
        volume_mounts=_configuration_mounts(),
    )


def _probe(endpoint: str, *, period_seconds: int, failure_threshold: int) -> core.Probe:
    return core.Probe(
        http_get=core.HTTPGetAction(path=f"/-/{endpoint}", port="web"),
        period_seconds=period_seconds,
        timeout_seconds=3,
        failure_threshold=failure_threshold,
    )


def _security_context() -> core.SecurityContext:
    return core.SecurityContext(
        allow_privilege_escalation=False,
        read_only_root_filesystem=True,
        capabilities=core.Capabilities(drop=["ALL"]),
    )


def _configuration_mounts() -> list[core.VolumeMount]:
    return [
        core.VolumeMount(name="declared", mount_path=f"{_DIRECTORY}/declared", read_only=True),
        core.VolumeMount(name="running", mount_path=f"{_DIRECTORY}/running"),
    ]
