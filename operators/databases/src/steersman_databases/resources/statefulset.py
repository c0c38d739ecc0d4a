"""The StatefulSet: one pod with the server, under the restricted Pod Security Standard."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.api.apply.apps_v1 import StatefulSetApply, StatefulSetSpecApply, StatefulSetUpdateStrategyApply
from steersman.api.apply.core_v1 import (
    CapabilitiesApply,
    ContainerApply,
    ContainerPortApply,
    EmptyDirVolumeSourceApply,
    ExecActionApply,
    PersistentVolumeClaimVolumeSourceApply,
    PodSecurityContextApply,
    PodSpecApply,
    PodTemplateSpecApply,
    ProbeApply,
    ResourceRequirementsApply,
    SeccompProfileApply,
    SecretVolumeSourceApply,
    SecurityContextApply,
    VolumeApply,
    VolumeMountApply,
)
from steersman.api.apply.meta_v1 import LabelSelectorApply
from steersman.meta import ObjectMetaApply
from steersman.meta.apply import TemplateMetaApply
from steersman_databases.api import Database
from steersman_databases.resources.names import Names, labels_of, selector_of

# The uid that the images create; see images/README.md.
_SERVER_UID = 10001
_PROBE = "/usr/local/bin/steersman-probe"
# Nobody reads a lone server's binary logs, and kept for MySQL's 30 days they fill the volume.
_ARGUMENTS = ("--skip-log-bin",)

CERTIFICATE_VOLUME = "tls"
_CERTIFICATE = "/etc/steersman/tls"
# MySQL wants to know by whom its certificate is signed, too.
_SHOWS = tuple(
    f"--ssl-{what}={_CERTIFICATE}/{file}"
    for what, file in (("ca", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerImage:
    """What runs in the pod: image reference and port, and the Secret with the certificate that it shows."""

    reference: str
    port: int
    certificate: str


def statefulset(database: Database, image: ServerImage) -> StatefulSetApply:
    """One replica on the claim of ``volume_claim``; the administrator's Secret is mounted, not an environment."""
    names = Names(database.key)
    return StatefulSetApply(
        metadata=ObjectMetaApply(
            name=names.statefulset.name, namespace=names.statefulset.namespace, labels=_versioned(database)
        ),
        spec=StatefulSetSpecApply(
            replicas=1,
            # In order, a pod that cannot start would never be replaced by one of a better template.
            pod_management_policy="Parallel",
            # An upgrade of the operator brings another template, and must not end the only server there is.
            update_strategy=StatefulSetUpdateStrategyApply(type="OnDelete"),
            service_name=names.headless_service.name,
            selector=LabelSelectorApply(match_labels=selector_of(database)),
            template=PodTemplateSpecApply(
                metadata=TemplateMetaApply(labels=_versioned(database)),
                spec=_pod(names, image),
            ),
        ),
    )


def _versioned(database: Database) -> dict[str, str]:
    return {**labels_of(database), "app.kubernetes.io/version": database.version}


def _pod(names: Names, image: ServerImage) -> PodSpecApply:
    return PodSpecApply(
        automount_service_account_token=False,
        enable_service_links=False,
        # A checkpoint of a busy server may take long; killing it costs a crash recovery.
        termination_grace_period_seconds=120,
        security_context=PodSecurityContextApply(
            run_as_non_root=True,
            run_as_user=_SERVER_UID,
            run_as_group=_SERVER_UID,
            fs_group=_SERVER_UID,
            fs_group_change_policy="OnRootMismatch",
            seccomp_profile=SeccompProfileApply(type="RuntimeDefault"),
        ),
        containers=[_server(image)],
        volumes=[
            VolumeApply(
                name="data",
                persistent_volume_claim=PersistentVolumeClaimVolumeSourceApply(claim_name=names.volume_claim.name),
            ),
            VolumeApply(
                name="admin",
                secret=SecretVolumeSourceApply(secret_name=names.administrator_secret.name, default_mode=0o440),
            ),
            VolumeApply(
                name=CERTIFICATE_VOLUME,
                secret=SecretVolumeSourceApply(secret_name=image.certificate, default_mode=0o440),
            ),
            VolumeApply(name="run", empty_dir=EmptyDirVolumeSourceApply(size_limit="16Mi")),
            VolumeApply(name="tmp", empty_dir=EmptyDirVolumeSourceApply(size_limit="1Gi")),
        ],
    )


def _server(image: ServerImage) -> ContainerApply:
    return ContainerApply(
        name="server",
        image=image.reference,
        image_pull_policy="IfNotPresent",
        args=(*_ARGUMENTS, *_SHOWS),
        ports=[ContainerPortApply(name="sql", container_port=image.port, protocol="TCP")],
        # Starting may include crash recovery: half an hour before it is given up.
        startup_probe=_probe("startup", period=1, failures=1800),
        liveness_probe=_probe("liveness", period=10, failures=6),
        readiness_probe=_probe("readiness", period=2, failures=3),
        resources=ResourceRequirementsApply(requests={"cpu": "100m", "memory": "384Mi"}, limits={"memory": "768Mi"}),
        security_context=SecurityContextApply(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesApply(drop=["ALL"]),
        ),
        volume_mounts=[
            VolumeMountApply(name="data", mount_path="/var/lib/steersman/data"),
            VolumeMountApply(name="admin", mount_path="/etc/steersman/admin", read_only=True),
            VolumeMountApply(name=CERTIFICATE_VOLUME, mount_path=_CERTIFICATE, read_only=True),
            VolumeMountApply(name="run", mount_path="/run/steersman"),
            VolumeMountApply(name="tmp", mount_path="/tmp"),  # noqa: S108
        ],
    )


def _probe(kind: str, *, period: int, failures: int) -> ProbeApply:
    # Under a full machine an exec takes seconds; the default limit of 1 s would restart healthy servers.
    return ProbeApply(
        exec=ExecActionApply(command=[_PROBE, kind]),
        period_seconds=period,
        timeout_seconds=10,
        failure_threshold=failures,
    )
