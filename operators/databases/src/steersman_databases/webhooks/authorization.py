"""Permissions of users for what the operator does for them."""

from __future__ import annotations

import asyncio

from steersman.api.core_v1 import Pod, Secret
from steersman.client import Client
from steersman.meta import ObjectKey
from steersman.webhook import AdmissionRequest, FieldError
from steersman_databases.api import (
    BackupStore,
    Cluster,
    Database,
    MySQLCluster,
    PostgreSQLCluster,
    PostgreSQLClusterSpec,
)
from steersman_databases.api.backup_common import BackupSettings
from steersman_databases.api.secret_references import ReferencedSecret, ReferencingObject, referenced_secrets

_CLUSTERS = (PostgreSQLCluster, MySQLCluster)
_MAX_SECRETS = 128
"""More than the schemas allow. A forged review does not go through the schema."""
_MAX_CONCURRENT_REVIEWS = 8


class AuthorizationCheck:
    """Requests access reviews of users from the API server.

    Args:
        client: the operator's.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reviews = asyncio.Semaphore(_MAX_CONCURRENT_REVIEWS)

    async def check(
        self, obj: ReferencingObject, previous: ReferencingObject | None, request: AdmissionRequest
    ) -> list[FieldError]:
        """Return the missing permissions for new parts of the object.

        All parts of a new object are new.
        """
        previous_uses = _previous_uses(obj, previous)
        named = [each for each in referenced_secrets(obj) if _use_of(each) not in previous_uses]
        keys = list(dict.fromkeys(each.key for each in named))
        if len(keys) > _MAX_SECRETS:
            return [FieldError("spec", f"refers to {len(keys)} Secrets: the limit is {_MAX_SECRETS}")]
        allowed = dict(zip(keys, await asyncio.gather(*(self._may_read(k, request) for k in keys)), strict=True))
        causes = [_secret_error(each, request) for each in named if not allowed[each.key]]
        if (changed_fields := _changed_pod_fields(obj, previous)) and not await self._may_run(request):
            causes += [_pod_error(field, request) for field in changed_fields]
        return causes

    async def _may_read(self, secret: ObjectKey, request: AdmissionRequest) -> bool:
        async with self._reviews:
            return await request.user.is_allowed(
                self._client, "get", Secret, namespace=secret.namespace, name=secret.name
            )

    async def _may_run(self, request: AdmissionRequest) -> bool:
        return await request.user.is_allowed(self._client, "create", Pod, namespace=request.namespace)


def _use_of(named: ReferencedSecret) -> tuple[str, ObjectKey, tuple[str, ...]]:
    """Return the use of the Secret, without its list position."""
    return named.field.partition("[")[0], named.key, named.keys


def _previous_uses(
    obj: ReferencingObject, previous: ReferencingObject | None
) -> set[tuple[str, ObjectKey, tuple[str, ...]]]:
    """Return the uses that an earlier request was checked for.

    A change of the server or of the object store changes who receives the Secrets: their uses are checked again.
    """
    if previous is None:
        return set()
    uses = {_use_of(each) for each in referenced_secrets(previous)}
    if isinstance(obj, _CLUSTERS) or isinstance(previous, _CLUSTERS):
        return uses
    if isinstance(obj, BackupStore) or isinstance(previous, BackupStore):
        return uses if _recipients(obj) == _recipients(previous) else set()
    same = obj.spec.server_ref == previous.spec.server_ref
    return {use for use in uses if same or not use[0].startswith("spec.serverRef.")}


def _recipients(obj: ReferencingObject) -> object:
    """Return the object store and namespaces of a ``BackupStore``'s Secrets."""
    if not isinstance(obj, BackupStore):
        return None
    spec = obj.spec
    return (spec.s3, spec.gcs, spec.azure, frozenset(spec.allowed_namespaces))


def _changed_pod_fields(obj: ReferencingObject, previous: ReferencingObject | None) -> list[str]:
    """Return fields of pods that are new and not the operator's choice."""
    previous_values = {} if previous is None else _privileged_pod_fields(previous)
    return [
        field
        for field, values in _privileged_pod_fields(obj).items()
        if values not in (None, previous_values.get(field))
    ]


def _privileged_pod_fields(obj: ReferencingObject) -> dict[str, str | None]:
    if isinstance(obj, PostgreSQLCluster | MySQLCluster):
        return {**_of_instances(obj), **_of_backup_jobs(obj.spec.backup)}
    return _of_backup_jobs(obj.spec.backup) if isinstance(obj, Database) else {}


def _of_backup_jobs(backup: BackupSettings | None) -> dict[str, str | None]:
    return {} if backup is None else {"spec.backup.jobs.priorityClassName": backup.jobs.priority_class_name}


def _of_instances(cluster: Cluster) -> dict[str, str | None]:
    """Return pod fields that require the right to create pods.

    They decide what runs and what it may do. Labels add the pod to other Services and policies, annotations to
    networks, or remove its confinement. A priority can evict other pods. Each cluster has to declare nodes and
    resources, so these are allowed.
    """
    spec = cluster.spec
    upgrade = spec.upgrade_image if isinstance(spec, PostgreSQLClusterSpec) else None
    return {
        "spec.image": spec.image,
        "spec.upgradeImage": upgrade,
        "spec.priorityClassName": spec.priority_class_name,
        **{f"spec.podMetadata.labels[{name}]": reported for name, reported in spec.pod_metadata.labels.items()},
        **{f"spec.podMetadata.annotations[{name}]": said for name, said in spec.pod_metadata.annotations.items()},
    }


def _secret_error(named: ReferencedSecret, request: AdmissionRequest) -> FieldError:
    namespace, name = named.key.namespace, named.key.name
    return FieldError(
        named.field,
        f'user "{request.user.username}" may not get Secret {name} in namespace {namespace}, which the operator '
        f"would use for them: let a permitted user apply it, or grant get of secrets with resourceNames [{name}] "
        "by a "
        f"Role in {namespace}",
        reason="FieldValueForbidden",
    )


def _pod_error(field: str, request: AdmissionRequest) -> FieldError:
    is_image = field.lower().endswith("image")
    explanation, alternative = ("run this image", " to use the operator's") if is_image else ("run pods with it", "")
    return FieldError(
        field,
        f'user "{request.user.username}" may not create pods in namespace {request.namespace}, where the operator '
        f"would {explanation} for them: remove it{alternative}, or let a permitted user apply it",
        reason="FieldValueForbidden",
    )
