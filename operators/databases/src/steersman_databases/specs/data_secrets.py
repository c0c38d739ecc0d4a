"""Secrets that live as long as the cluster or its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from steersman.api.apply import core, meta
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import ObjectKey
from steersman_databases.api.group import GROUP, VERSION
from steersman_databases.engines.cluster_engine import DeclaredCluster

DATA_IDENTITY_ANNOTATION = f"{GROUP}/data-identity"
"""Annotation of Secrets: identity of the data that were served last."""


def owned_by(pvc: PersistentVolumeClaim) -> meta.OwnerReference:
    """Return the owner reference to a PVC."""
    return meta.OwnerReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        name=pvc.metadata.name,
        uid=pvc.metadata.uid,
    )


def data_owners(cluster: DeclaredCluster, pvcs: Sequence[PersistentVolumeClaim]) -> list[meta.OwnerReference]:
    """Return the owners of a Secret, none of them its controller.

    The garbage collector deletes it when neither the cluster nor one of the PVCs exists.
    """
    own = meta.OwnerReference(
        api_version=f"{GROUP}/{VERSION}", kind=cluster.kind, name=cluster.key.name, uid=cluster.uid
    )
    return [own, *(owned_by(pvc) for pvc in pvcs)]


def cluster_secret(
    key: ObjectKey,
    labels: Mapping[str, str],
    data: Mapping[str, bytes],
    owners: Sequence[meta.OwnerReference],
    annotations: Mapping[str, str] | None = None,
) -> core.Secret:
    """Return a Secret of a cluster. One with a certificate has type ``kubernetes.io/tls``."""
    return core.Secret(
        metadata=meta.ObjectMeta(
            name=key.name,
            namespace=key.namespace,
            labels=labels,
            annotations=annotations or UNSET,
            owner_references=owners,
        ),
        type="kubernetes.io/tls" if "tls.crt" in data else "Opaque",
        data=data,
    )
