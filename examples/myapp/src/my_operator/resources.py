# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Owned objects of a MyApp, as functions without side effects."""

from __future__ import annotations

from hashlib import sha256

from steersman import ObjectKey, ObjectMetaApply
from steersman.api.apply.apps_v1 import (
    DeploymentApply,
    DeploymentSpecApply,
    DeploymentStrategyApply,
    RollingUpdateDeploymentApply,
)
from steersman.api.apply.batch_v1 import JobApply, JobSpecApply
from steersman.api.apply.core_v1 import (
    CapabilitiesApply,
    ContainerApply,
    ContainerPortApply,
    EnvVarApply,
    EnvVarSourceApply,
    HTTPGetActionApply,
    PodSecurityContextApply,
    PodSpecApply,
    PodTemplateSpecApply,
    ProbeApply,
    ResourceRequirementsApply,
    SeccompProfileApply,
    SecretKeySelectorApply,
    SecurityContextApply,
    ServiceApply,
    ServicePortApply,
    ServiceSpecApply,
)
from steersman.api.apply.meta_v1 import LabelSelectorApply
from steersman.api.core_v1 import Container, PodSpec
from steersman.meta import TemplateMetaApply

from my_operator.api.v1.myapp import MyApp
from my_operator.foreign.apply.databases_steersman_dev_v1alpha1 import DatabaseApply, DatabaseSpecApply

CONTAINER = "app"
DATABASE_UID = "example.com/database-uid"
PORT = 8080

RESOURCES = ResourceRequirementsApply(requests={"cpu": "10m", "memory": "32Mi"})
UNPRIVILEGED = SecurityContextApply(
    allow_privilege_escalation=False,
    read_only_root_filesystem=True,
    capabilities=CapabilitiesApply(drop=["ALL"]),
)


def selector_labels(app: MyApp) -> dict[str, str]:
    """Return the immutable selector labels of the serving pods."""
    return {"app.kubernetes.io/name": "myapp", "app.kubernetes.io/instance": app.metadata.name}


def recommended_labels(app: MyApp, image: str) -> dict[str, str]:
    """Return the recommended labels of pods with ``image``."""
    version = image.rpartition(":")[2]
    return {
        **selector_labels(app),
        "app.kubernetes.io/version": version,
        "app.kubernetes.io/managed-by": "my-operator",
    }


def database(app: MyApp) -> DatabaseApply:
    """Return the Database. Users own the other fields, such as the deletion policy."""
    spec = DatabaseSpecApply(engine="postgresql", version="17", storage_size=app.spec.database.storage)
    return DatabaseApply(metadata=_metadata(app), spec=spec)


def service(app: MyApp) -> ServiceApply:
    """Return the Service of the ready pods."""
    port = ServicePortApply(name="http", port=80, target_port="http")
    return ServiceApply(metadata=_metadata(app), spec=ServiceSpecApply(selector=selector_labels(app), ports=[port]))


def deployment(app: MyApp, image: str, *, with_database: bool) -> DeploymentApply:
    """Return the Deployment for ``image``.

    The previous version serves until the pods of the new one are ready.
    """
    container = ContainerApply(
        name=CONTAINER,
        image=image,
        env=_environment(app, with_database),
        ports=[ContainerPortApply(name="http", container_port=PORT)],
        liveness_probe=ProbeApply(http_get=HTTPGetActionApply(path="/livez", port="http"), period_seconds=10),
        readiness_probe=ProbeApply(http_get=HTTPGetActionApply(path="/readyz", port="http"), period_seconds=2),
        resources=RESOURCES,
        security_context=UNPRIVILEGED,
    )
    return DeploymentApply(
        metadata=_metadata(app),
        spec=DeploymentSpecApply(
            replicas=app.spec.replicas,
            selector=LabelSelectorApply(match_labels=selector_labels(app)),
            strategy=DeploymentStrategyApply(
                type="RollingUpdate", rolling_update=RollingUpdateDeploymentApply(max_surge=1, max_unavailable=0)
            ),
            progress_deadline_seconds=app.spec.rollout_deadline_seconds,
            template=PodTemplateSpecApply(
                metadata=TemplateMetaApply(labels=recommended_labels(app, image)), spec=_pod(container, "Always")
            ),
        ),
    )


def migration_key(app: MyApp, image: str) -> ObjectKey:
    """Return the key of the migration Job for ``image``, always the same."""
    return ObjectKey(app.metadata.namespace, f"{app.metadata.name}-migrate-{sha256(image.encode()).hexdigest()[:8]}")


def migration(app: MyApp, image: str, database_uid: str) -> JobApply:
    """Return the Job that migrates the database to ``image``."""
    container = ContainerApply(
        name=CONTAINER,
        image=image,
        args=["migrate"],
        env=_environment(app, True),
        resources=RESOURCES,
        security_context=UNPRIVILEGED,
    )
    labels = {"app.kubernetes.io/name": "myapp-migration", "app.kubernetes.io/instance": app.metadata.name}
    pod = PodTemplateSpecApply(metadata=TemplateMetaApply(labels=labels), spec=_pod(container, "Never"))
    return JobApply(
        metadata=ObjectMetaApply(
            name=migration_key(app, image).name,
            namespace=app.metadata.namespace,
            labels=labels,
            annotations={DATABASE_UID: database_uid},
        ),
        spec=JobSpecApply(
            backoff_limit=1,
            active_deadline_seconds=app.spec.migration_deadline_seconds,
            # Replace a pod only after it has terminated.
            pod_replacement_policy="Failed",
            template=pod,
        ),
    )


def app_image(pod: PodSpec) -> str:
    """Return the image of the application container; empty without one."""
    return next((c.image or "" for c in pod.containers if c.name == CONTAINER), "")


def has_database(pod: PodSpec) -> bool:
    """Return True if the application container has a database URL."""
    return any(_has_database_url(c) for c in pod.containers if c.name == CONTAINER)


def _has_database_url(container: Container) -> bool:
    return any(e.name == "DATABASE_URL" for e in container.env)


def _metadata(app: MyApp) -> ObjectMetaApply:
    return ObjectMetaApply(name=app.metadata.name, namespace=app.metadata.namespace, labels=selector_labels(app))


def _environment(app: MyApp, with_database: bool) -> list[EnvVarApply]:
    # Name of the Secret that the database operator creates for applications.
    secret_key = SecretKeySelectorApply(name=f"{app.metadata.name}-app", key="uri")
    url = EnvVarApply(name="DATABASE_URL", value_from=EnvVarSourceApply(secret_key_ref=secret_key))
    return [url] if with_database else []


def _pod(container: ContainerApply, restart_policy: str) -> PodSpecApply:
    return PodSpecApply(
        automount_service_account_token=False,
        enable_service_links=False,
        restart_policy=restart_policy,
        security_context=PodSecurityContextApply(
            run_as_non_root=True,
            run_as_user=10001,
            run_as_group=10001,
            seccomp_profile=SeccompProfileApply(type="RuntimeDefault"),
        ),
        containers=[container],
    )
