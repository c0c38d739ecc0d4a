"""Secrets: the administrator's credentials, and what applications connect with.

Both are owned by the volume claim once there is one: a password lives as long as the data that it opens.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from steersman.api.apply.core_v1 import SecretApply
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import ObjectKey, ObjectMetaApply, OwnerReferenceApply
from steersman_databases.api import Database
from steersman_databases.resources.names import Names, labels_of


def generate_password() -> str:
    """A password of 192 random bits, in characters that no shell, URL or configuration file changes."""
    return secrets.token_urlsafe(24)


def administrator_secret(
    database: Database, data: Mapping[str, bytes], claim: PersistentVolumeClaim | None
) -> SecretApply:
    """``username`` and ``password`` of the administrator, mounted into the server's pod."""
    return _secret(database, Names(database.key).administrator_secret, data, claim)


def application_secret(
    database: Database, data: Mapping[str, bytes], claim: PersistentVolumeClaim | None
) -> SecretApply:
    """Host, port, database, user, password and URI, under the keys that applications expect."""
    return _secret(database, Names(database.key).application_secret, data, claim)


def certificate_secret(
    database: Database, key: ObjectKey, data: Mapping[str, bytes], claims: Sequence[PersistentVolumeClaim]
) -> SecretApply:
    """What the server of one ``Database`` shows as long as its pod lives, and the authority that signed it."""
    return replace(cluster_secret(key, labels_of(database), data, claims), immutable=True)


def _secret(
    database: Database, key: ObjectKey, data: Mapping[str, bytes], claim: PersistentVolumeClaim | None
) -> SecretApply:
    owners = UNSET if claim is None else [owned_by(claim)]
    return SecretApply(
        metadata=ObjectMetaApply(
            name=key.name, namespace=key.namespace, labels=labels_of(database), owner_references=owners
        ),
        type="Opaque",
        data=data,
    )


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
