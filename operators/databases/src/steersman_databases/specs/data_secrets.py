"""Secrets owned by PVCs: a password lives as long as its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from steersman.api.apply import core, meta
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import ObjectKey


def owned_by(pvc: PersistentVolumeClaim) -> meta.OwnerReference:
    """The reference that lets a Secret go when ``claim`` goes."""
    return meta.OwnerReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        name=pvc.metadata.name,
        uid=pvc.metadata.uid,
    )


def cluster_secret(
    key: ObjectKey, labels: Mapping[str, str], data: Mapping[str, bytes], pvcs: Sequence[PersistentVolumeClaim]
) -> core.Secret:
    """A Secret of a cluster's data.

    One with a certificate has type ``kubernetes.io/tls``.
    """
    return core.Secret(
        metadata=meta.ObjectMeta(
            name=key.name,
            namespace=key.namespace,
            labels=labels,
            owner_references=[owned_by(pvc) for pvc in pvcs] or UNSET,
        ),
        type="kubernetes.io/tls" if "tls.crt" in data else "Opaque",
        data=data,
    )
