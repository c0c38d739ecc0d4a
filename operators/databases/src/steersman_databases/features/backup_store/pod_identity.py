"""Workload identity of the pods of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from steersman.api.core_v1 import Secret
from steersman.cache import CachedClient
from steersman.meta import ObjectKey
from steersman_databases.api.backups.backup_common import BackupSettings
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.core.labels import belongs_to
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.workload_identity import WorkloadIdentity, identity_of_document
from steersman_databases.features.backup_store.access import StoreProblem
from steersman_databases.features.backup_store.identity import identity_annotations
from steersman_databases.features.backup_store.model import find_store

_STORE_KEY = "store.json"


async def with_store_identity(
    client: CachedClient, declared: DeclaredCluster, settings: BackupSettings | None
) -> DeclaredCluster:
    """Return the cluster with the workload identity that its object store needs.

    The Secret that the pods use decides. So a ``BackupStore`` that cannot be used now restarts no pod.

    Args:
        settings: ``spec.backup``.
    """
    if settings is None:
        return declared
    secret = await get_cached_or_live(client, Secret, declared.names.backup_secret)
    if secret is None:
        return _with(declared, await _identity_of_store(client, declared, settings))
    return _with(declared, identity_of_secret(secret) if belongs_to(secret, declared) else None)


async def with_present_identity(client: CachedClient, declared: DeclaredCluster) -> DeclaredCluster:
    """Return the cluster with the identity of its present Secret."""
    secret = await get_cached_or_live(client, Secret, declared.names.backup_secret)
    if secret is None or not belongs_to(secret, declared):
        return declared
    return _with(declared, identity_of_secret(secret))


def identity_of_secret(secret: Secret) -> WorkloadIdentity | None:
    """Return the identity for the store in a Secret.

    None for credentials in the Secret.
    """
    try:
        document = msgspec.json.decode(secret.data.get(_STORE_KEY, b""), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return None
    return identity_of_document(document)


async def present_identity(client: CachedClient, key: ObjectKey) -> WorkloadIdentity | None:
    """Return the identity for the store in a Secret of the operator."""
    secret = await get_cached_or_live(client, Secret, key)
    return None if secret is None else identity_of_secret(secret)


def require_same_identity(declared: DeclaredCluster, document: Mapping[str, object]) -> None:
    """Reject a store with another workload identity.

    A pod has only one.

    Raises:
        StoreProblem: the identities differ.
    """
    identity = identity_of_document(document)
    if identity is not None and identity != declared.pod_settings.identity:
        raise StoreProblem(
            "UnsupportedStore",
            "the BackupStore of the source has another workload identity than this cluster. Set"
            " spec.backup.storeRef to a BackupStore with the same serviceAccountAnnotations and region",
        )


def _with(declared: DeclaredCluster, identity: WorkloadIdentity | None) -> DeclaredCluster:
    return replace(declared, pod_settings=replace(declared.pod_settings, identity=identity))


async def _identity_of_store(
    client: CachedClient, declared: DeclaredCluster, settings: BackupSettings
) -> WorkloadIdentity | None:
    """Return the declared identity.

    The first pods of a cluster need it before the Secret exists.
    """
    try:
        store = await find_store(client, settings.store_ref, declared.key.namespace)
        if store.spec.credentials.workload_identity is None:
            return None
        annotations = identity_annotations(store)
    except StoreProblem:
        return None
    region = "" if store.spec.s3 is None else store.spec.s3.region
    return WorkloadIdentity(service=store.provider, annotations=annotations, region=region)
