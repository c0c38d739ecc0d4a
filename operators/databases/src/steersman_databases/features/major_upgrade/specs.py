"""Jobs of a major upgrade.

One checks the content of its image, the other upgrades the primary's volume. Their pods have no labels of
instances or members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from steersman.api.apply import batch, core, meta
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines.cluster_engine import DeclaredCluster, PodContribution, UpgradeInventory
from steersman_databases.engines.naming import INSTANCE_LABEL, VERSION_LABEL
from steersman_databases.features.major_upgrade.model import UPGRADE_IMAGE_ANNOTATION, PendingUpgrade
from steersman_databases.specs.instance_job import instance_container, run_once
from steersman_databases.specs.job_hash import job_hash
from steersman_databases.specs.statefulset import InstanceSettings, instance_pod

CHECK_FINGERPRINT_ANNOTATION = "databases.steersman.dev/check-fingerprint"
"""Annotation of the check Job: a hash of its input."""
JOB_LABEL = "batch.kubernetes.io/job-name"
_CONTAINER = "upgrade"
_OPTIONS_CHECKED_SINCE = 18
EXIT_CODE_REJECTED = 3
"""Exit code of the container if a retry would not help."""


def upgrade_job(
    cluster: DeclaredCluster, instance: int, upgrade: PendingUpgrade, parts: PodContribution
) -> batch.Job:
    """Return the Job that upgrades the volumes of an instance.

    It is created suspended, and resumed when no server runs.

    Args:
        parts: the instance's pod without a server.
    """
    settings = InstanceSettings(ordinal=instance, image=upgrade.image, fenced=True)
    pod = run_once(instance_pod(cluster, settings, parts), _CONTAINER, ["/usr/local/bin/steersman-start", "upgrade"])
    return batch.Job(
        metadata=meta.ObjectMeta(
            name=cluster.names.upgrade_job.name,
            namespace=cluster.key.namespace,
            labels={**upgrade_labels(cluster), INSTANCE_LABEL: str(instance), VERSION_LABEL: upgrade.to_version},
            annotations={UPGRADE_IMAGE_ANNOTATION: upgrade.declared_image, **job_hash(pod)},
        ),
        spec=_spec(cluster, pod, suspend=True),
    )


def check_job(
    cluster: DeclaredCluster, upgrade: PendingUpgrade, inventory: UpgradeInventory, parts: PodContribution
) -> batch.Job:
    """Return the Job that checks the image for used extensions and libraries.

    It mounts no volume.
    """
    settings = InstanceSettings(ordinal=0, image=upgrade.image, fenced=True)
    # Images that upgrade to earlier versions do not have the last argument.
    options = inventory.column_options if int(upgrade.to_version) >= _OPTIONS_CHECKED_SINCE else ()
    fingerprint = [
        *(argument for name in inventory.extensions for argument in ("--extension", name)),
        *(word for name in inventory.libraries for word in ("--library", name)),
        *(word for name in options for word in ("--column-option", name)),
    ]
    pod = run_once(
        instance_pod(cluster, settings, parts),
        _CONTAINER,
        ["/usr/local/bin/steersman-upgrade", "offers", *fingerprint],
    )
    server = msgspec.structs.replace(instance_container(pod), volume_mounts=UNSET)
    return batch.Job(
        metadata=meta.ObjectMeta(
            name=cluster.names.upgrade_check_job.name,
            namespace=cluster.key.namespace,
            labels=upgrade_labels(cluster),
            annotations={CHECK_FINGERPRINT_ANNOTATION: check_fingerprint(upgrade, inventory)},
        ),
        spec=_spec(cluster, msgspec.structs.replace(pod, containers=[server], volumes=UNSET), suspend=False),
    )


def check_fingerprint(upgrade: PendingUpgrade, inventory: UpgradeInventory) -> str:
    """Return a hash of the input of `check_job`."""
    hashed = [upgrade.image, upgrade.generation, sorted(inventory.extensions), sorted(inventory.libraries)]
    hashed += [sorted(inventory.column_options)] if inventory.column_options else []
    return hashlib.sha256(msgspec.json.encode(hashed)).hexdigest()[:16]


def upgrade_labels(cluster: DeclaredCluster) -> Mapping[str, str]:
    """Return the labels of the Jobs and their pods."""
    prefix = "app.kubernetes.io"
    return {
        f"{prefix}/name": f"{cluster.engine}-upgrade",
        f"{prefix}/instance": cluster.key.name,
        f"{prefix}/managed-by": MANAGED_BY,
        f"{prefix}/component": "upgrade",
    }


def _spec(cluster: DeclaredCluster, pod: core.PodSpec, *, suspend: bool) -> batch.JobSpec:
    return batch.JobSpec(
        suspend=suspend,
        # Failures other than refusals are retried after 10, 20, 40 and 80 seconds, because the cluster serves no
        # clients.
        backoff_limit=4,
        # Two pods on one volume would wait for each other.
        pod_replacement_policy="Failed",
        pod_failure_policy=batch.PodFailurePolicy(
            rules=[
                # A refusal would repeat. An evicted pod implies nothing.
                batch.PodFailurePolicyRule(
                    action="FailJob",
                    on_exit_codes=batch.PodFailurePolicyOnExitCodesRequirement(
                        container_name=_CONTAINER, operator="In", values=[EXIT_CODE_REJECTED]
                    ),
                ),
                batch.PodFailurePolicyRule(
                    action="Ignore",
                    on_pod_conditions=[
                        batch.PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget", status="True")
                    ],
                ),
            ]
        ),
        template=core.PodTemplateSpec(metadata=meta.TemplateMeta(labels=upgrade_labels(cluster)), spec=pod),
    )
