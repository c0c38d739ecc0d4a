# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Owned objects of a MyApp, as functions without side effects."""

from __future__ import annotations

from hashlib import sha256

from steersman import ObjectKey
from steersman.api.apply import apps, batch, core, meta
from steersman.api.core_v1 import Container, PodSpec

from my_operator.api.v1.myapp import MyApp, Release
from my_operator.foreign.apply import databases_steersman_dev_v1alpha1 as databases

NAME = "myapp"
CONTAINER = "app"
DATABASE_UID = "example.com/database-uid"
PORT = 8080

RESOURCES = core.ResourceRequirements(requests={"cpu": "10m", "memory": "32Mi"})
UNPRIVILEGED = core.SecurityContext(
    allow_privilege_escalation=False,
    read_only_root_filesystem=True,
    capabilities=core.Capabilities(drop=["ALL"]),
)


def selector_labels(app: MyApp) -> dict[str, str]:
    """Return the immutable selector labels of the serving pods."""
    return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": app.metadata.name}


def recommended_labels(app: MyApp, release: Release) -> dict[str, str]:
    """Return the recommended labels of pods of ``release``."""
    return {
        **selector_labels(app),
        "app.kubernetes.io/version": release.version,
        "app.kubernetes.io/managed-by": "my-operator",
    }


def database(app: MyApp) -> databases.Database:
    """Return the Database. Users own the other fields, such as the deletion policy."""
    spec = databases.DatabaseSpec(engine="postgresql", version="17", storage_size=app.spec.database.storage)
    return databases.Database(metadata=_metadata(app), spec=spec)


def service(app: MyApp) -> core.Service:
    """Return the Service of the ready pods."""
    port = core.ServicePort(name="http", port=80, target_port="http")
    return core.Service(metadata=_metadata(app), spec=core.ServiceSpec(selector=selector_labels(app), ports=[port]))


def config_map(app: MyApp) -> core.ConfigMap:
    """Return the ConfigMap with the settings of the desired release.

    It never changes: other settings are another ConfigMap. A rollback needs the previous one.
    """
    name = app.release.config
    metadata = meta.ObjectMeta(name=name, namespace=app.metadata.namespace, labels=selector_labels(app))
    return core.ConfigMap(metadata=metadata, data=app.spec.config, immutable=True)


def deployment(app: MyApp, release: Release, *, with_database: bool) -> apps.Deployment:
    """Return the Deployment for ``release``.

    The previous release serves until the pods of the new one are ready.
    """
    container = core.Container(
        name=CONTAINER,
        image=release.image,
        env=_environment(app, with_database),
        env_from=_settings(release),
        ports=[core.ContainerPort(name="http", container_port=PORT)],
        liveness_probe=core.Probe(http_get=core.HTTPGetAction(path="/livez", port="http"), period_seconds=10),
        readiness_probe=core.Probe(http_get=core.HTTPGetAction(path="/readyz", port="http"), period_seconds=2),
        resources=RESOURCES,
        security_context=UNPRIVILEGED,
    )
    return apps.Deployment(
        metadata=_metadata(app),
        spec=apps.DeploymentSpec(
            replicas=app.spec.replicas,
            selector=meta.LabelSelector(match_labels=selector_labels(app)),
            strategy=apps.DeploymentStrategy(
                type="RollingUpdate", rolling_update=apps.RollingUpdateDeployment(max_surge=1, max_unavailable=0)
            ),
            progress_deadline_seconds=app.spec.rollout_deadline_seconds,
            template=core.PodTemplateSpec(
                metadata=meta.TemplateMeta(labels=recommended_labels(app, release)), spec=_pod(container, "Always")
            ),
        ),
    )


def migration_key(app: MyApp, image: str) -> ObjectKey:
    """Return the key of the migration Job for ``image``, always the same."""
    return ObjectKey(app.metadata.namespace, f"{app.metadata.name}-migrate-{sha256(image.encode()).hexdigest()[:8]}")


def migration(app: MyApp, release: Release, database_uid: str) -> batch.Job:
    """Return the Job that migrates the database to ``release``."""
    container = core.Container(
        name=CONTAINER,
        image=release.image,
        args=["migrate"],
        env=_environment(app, True),
        env_from=_settings(release),
        resources=RESOURCES,
        security_context=UNPRIVILEGED,
    )
    labels = {"app.kubernetes.io/name": "myapp-migration", "app.kubernetes.io/instance": app.metadata.name}
    pod = core.PodTemplateSpec(metadata=meta.TemplateMeta(labels=labels), spec=_pod(container, "Never"))
    return batch.Job(
        metadata=meta.ObjectMeta(
            name=migration_key(app, release.image).name,
            namespace=app.metadata.namespace,
            labels=labels,
            annotations={DATABASE_UID: database_uid},
        ),
        spec=batch.JobSpec(
            backoff_limit=1,
            active_deadline_seconds=app.spec.migration_deadline_seconds,
            # Replace a pod only after it has terminated.
            pod_replacement_policy="Failed",
            template=pod,
        ),
    )


def release_of(pod: PodSpec) -> Release | None:
    """Return the release of a pod; None without the application container."""
    found = (c for c in pod.containers if c.name == CONTAINER)
    return next((Release(image=c.image or "", config=_config_of(c)) for c in found), None)


def has_database(pod: PodSpec) -> bool:
    """Return True if the application container has a database URL."""
    return any(_has_database_url(c) for c in pod.containers if c.name == CONTAINER)


def _settings(release: Release) -> list[core.EnvFromSource]:
    reference = core.ConfigMapEnvSource(name=release.config)
    return [core.EnvFromSource(config_map_ref=reference)] if release.config else []


def _config_of(container: Container) -> str:
    names = (source.config_map_ref.name for source in container.env_from if source.config_map_ref is not None)
    return next((name for name in names if name), "")


def _has_database_url(container: Container) -> bool:
    return any(e.name == "DATABASE_URL" for e in container.env)


def _metadata(app: MyApp) -> meta.ObjectMeta:
    return meta.ObjectMeta(name=app.metadata.name, namespace=app.metadata.namespace, labels=selector_labels(app))


def _environment(app: MyApp, with_database: bool) -> list[core.EnvVar]:
    # Name of the Secret that the database operator creates for applications.
    secret_key = core.SecretKeySelector(name=f"{app.metadata.name}-app", key="uri")
    url = core.EnvVar(name="DATABASE_URL", value_from=core.EnvVarSource(secret_key_ref=secret_key))
    return [url] if with_database else []


def _pod(container: core.Container, restart_policy: str) -> core.PodSpec:
    return core.PodSpec(
        automount_service_account_token=False,
        enable_service_links=False,
        restart_policy=restart_policy,
        security_context=core.PodSecurityContext(
            run_as_non_root=True,
            run_as_user=10001,
            run_as_group=10001,
            seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
        ),
        containers=[container],
    )
