"""Secrets that are owned by volume claims: a password lives as long as the data that it opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from steersman.api.apply import core, meta
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import ObjectKey


def owned_by(claim: PersistentVolumeClaim) -> meta.OwnerReference:
    """The reference that lets a Secret go when ``claim`` goes."""
    return meta.OwnerReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        name=claim.metadata.name,
        uid=claim.metadata.uid,
    )


def cluster_secret(
    key: ObjectKey, labels: Mapping[str, str], data: Mapping[str, bytes], claims: Sequence[PersistentVolumeClaim]
) -> core.Secret:
    """A Secret that belongs to the data of a cluster; one with a certificate is of type ``kubernetes.io/tls``."""
    return core.Secret(
        metadata=meta.ObjectMeta(
            name=key.name,
            namespace=key.namespace,
            labels=labels,
            owner_references=[owned_by(claim) for claim in claims] or UNSET,
        ),
        type="kubernetes.io/tls" if "tls.crt" in data else "Opaque",
        data=data,
    )
