"""PVCs of an instance.

They live as long as their data, so they have no owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from msgspec import UNSET

from steersman.api.apply import core, meta
from steersman.meta import ObjectKey, Quantity
from steersman_databases.cluster.state import AWAITING_COPY, AWAITING_RECOVERY, LINEAGE, MAJOR_LABEL, RESTORING
from steersman_databases.core.labels import volume_labels
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.storage.usage import GROWN, Growth

RESTORED_BY = "databases.steersman.dev/restored-by"
"""Annotation of restored data PVCs: UID of the `Restore`."""
KEEP_PREVIOUS = "databases.steersman.dev/keep-previous-seconds"
"""On the same PVCs: seconds to keep the previous volumes."""
REPLACED_BY = "databases.steersman.dev/replaced-by"
"""Label of PVCs left behind: UID of the `Restore`."""
DELETE_AFTER = "databases.steersman.dev/delete-after"
"""Annotation of such PVCs: when they are deleted, RFC 3339."""
REPLACED_PRIMARY = "databases.steersman.dev/replaced-primary"
"""On the same PVCs: ordinal of the previous primary."""
LINEAGE_SINCE = "databases.steersman.dev/lineage-since"
"""On the same PVCs: when the previous instances had stopped, RFC 3339."""
SERVED_UNTIL = "databases.steersman.dev/served-until"
"""Annotation of the previous primary's kept data PVC: that time."""
RESTORED_TIMELINE = "databases.steersman.dev/restored-timeline"
"""Annotation of overwritten data PVCs: reserved timeline of PostgreSQL."""
ENGINE_LABEL = "databases.steersman.dev/engine"
"""Engine of the data on a volume.

No other engine receives retained data.
"""


@dataclass(frozen=True, slots=True)
class RestoredVolume:
    """A volume for a restore in place.

    Args:
        restore_uid: UID of the `Restore`.
        keep_previous: how long the volumes of the previous instances are kept.
    """

    restore_uid: str
    keep_previous: timedelta

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of the data PVC until the cut."""
        return {
            RESTORING: self.restore_uid,
            RESTORED_BY: self.restore_uid,
            KEEP_PREVIOUS: str(round(self.keep_previous.total_seconds())),
        }


def data_pvc(
    cluster: DeclaredCluster,
    ordinal: int,
    size: Quantity | None = None,
    *,
    for_recovery: bool = False,
    for_copy: bool = False,
    annotations: Mapping[str, str] | None = None,
) -> core.PersistentVolumeClaim:
    """Return the PVC of an instance's data.

    Args:
        size: defaults to the declared size.
        for_recovery: a recovery fills the volume before a server starts on it.
        for_copy: the server copies the data of another instance.
        annotations: further annotations.
    """
    key, desired_size = cluster.names.data_pvc(ordinal), size or cluster.storage_size
    awaiting = {AWAITING_RECOVERY: cluster.uid} if for_recovery else {AWAITING_COPY: "true"} if for_copy else {}
    labels = {**_labels(cluster, ordinal), **awaiting}
    recorded = _recorded("data" in cluster.recorded_volumes)
    return _pvc(key, labels, desired_size, cluster.storage_class, {**recorded, **(annotations or {})})


def lineage_annotations(lineage: int) -> dict[str, str]:
    """Return the annotation for a number of restores in place."""
    return {LINEAGE: str(lineage)} if lineage else {}


def wal_pvc(cluster: DeclaredCluster, ordinal: int, size: Quantity | None = None) -> core.PersistentVolumeClaim:
    """Return the PVC of an instance's WAL.

    The cluster must have a `wal_size`.
    """
    desired_size = size or cluster.wal_size
    assert desired_size is not None
    key, labels = cluster.names.wal_pvc(ordinal), _labels(cluster, ordinal)
    return _pvc(key, labels, desired_size, cluster.wal_class, _recorded("wal" in cluster.recorded_volumes))


def _labels(cluster: DeclaredCluster, ordinal: int) -> Mapping[str, str]:
    return {**volume_labels(cluster, ordinal), ENGINE_LABEL: cluster.engine, MAJOR_LABEL: cluster.version}


def _recorded(recorded: bool) -> dict[str, str]:
    """Return the mark of a PVC that follows the others' size."""
    return {GROWN: Growth().as_annotation()} if recorded else {}


def _pvc(
    key: ObjectKey,
    labels: Mapping[str, str],
    size: Quantity,
    storage_class: str | None,
    annotations: Mapping[str, str],
) -> core.PersistentVolumeClaim:
    return core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(
            name=key.name, namespace=key.namespace, labels=labels, annotations=annotations or UNSET
        ),
        spec=core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            storage_class_name=UNSET if storage_class is None else storage_class,
            resources=core.VolumeResourceRequirements(requests={"storage": str(size)}),
        ),
    )
