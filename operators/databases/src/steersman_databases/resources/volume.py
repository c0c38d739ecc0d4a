"""The volume claim: lives as long as its data, so nothing owns it."""

from __future__ import annotations

from steersman.api.apply.core_v1 import (
    PersistentVolumeClaimApply,
    PersistentVolumeClaimSpecApply,
    VolumeResourceRequirementsApply,
)
from steersman.meta import ObjectMetaApply, Quantity
from steersman_databases.api import Database
from steersman_databases.resources.names import Names, labels_of

ENGINE_LABEL = "databases.steersman.dev/engine"
"""Says which engine's data is on a volume, so that retained data is never given to another engine."""


def volume_claim(database: Database, size: Quantity) -> PersistentVolumeClaimApply:
    """The claim of ``size``. It has no owner: deleting the ``Database``, in whatever propagation mode, leaves it."""
    key = Names(database.key).volume_claim
    return PersistentVolumeClaimApply(
        metadata=ObjectMetaApply(
            name=key.name,
            namespace=key.namespace,
            labels={**labels_of(database), ENGINE_LABEL: database.engine},
        ),
        spec=PersistentVolumeClaimSpecApply(
            access_modes=["ReadWriteOnce"],
            resources=VolumeResourceRequirementsApply(requests={"storage": str(size)}),
        ),
    )
