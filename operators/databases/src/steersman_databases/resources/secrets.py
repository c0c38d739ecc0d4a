"""Secrets that are owned by volume claims: a password lives as long as the data that it opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET

from steersman.api.apply.core_v1 import SecretApply
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import ObjectKey, ObjectMetaApply, OwnerReferenceApply


def owned_by(claim: PersistentVolumeClaim) -> OwnerReferenceApply:
    """The reference that lets a Secret go when ``claim`` goes."""
    return OwnerReferenceApply(
        api_version="v1",
        kind="PersistentVolumeClaim",
        name=claim.metadata.name,
        uid=claim.metadata.uid,
    )


def cluster_secret(
    key: ObjectKey, labels: Mapping[str, str], data: Mapping[str, bytes], claims: Sequence[PersistentVolumeClaim]
) -> SecretApply:
    """A Secret that belongs to the data of a cluster; one with a certificate is of type ``kubernetes.io/tls``."""
    return SecretApply(
        metadata=ObjectMetaApply(
            name=key.name,
            namespace=key.namespace,
            labels=labels,
            owner_references=[owned_by(claim) for claim in claims] or UNSET,
        ),
        type="kubernetes.io/tls" if "tls.crt" in data else "Opaque",
        data=data,
    )
