"""PVCs of an instance.

They live as long as their data, so they have no owner.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from steersman.api.apply import core, meta
from steersman.meta import ObjectKey, Quantity
from steersman_databases.cluster.state import AWAITING_RECOVERY, MAJOR_LABEL
from steersman_databases.core.labels import instance_labels
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.storage.usage import GROWN, Growth

ENGINE_LABEL = "databases.steersman.dev/engine"
"""Engine of the data on a volume.

No other engine receives retained data.
"""


def data_pvc(
    cluster: DeclaredCluster, ordinal: int, size: Quantity | None = None, *, for_recovery: bool = False
) -> core.PersistentVolumeClaim:
    """Return the PVC of an instance's data.

    Args:
        size: defaults to the declared size.
        for_recovery: a recovery fills the volume before a server starts on it.
    """
    key, desired_size = cluster.names.data_pvc(ordinal), size or cluster.storage_size
    recovery = {AWAITING_RECOVERY: cluster.uid} if for_recovery else {}
    labels = {**_labels(cluster, ordinal), **recovery}
    return _pvc(key, labels, desired_size, cluster.storage_class, recorded="data" in cluster.recorded_volumes)


def wal_pvc(cluster: DeclaredCluster, ordinal: int, size: Quantity | None = None) -> core.PersistentVolumeClaim:
    """Return the PVC of an instance's WAL.

    The cluster must have a `wal_size`.
    """
    desired_size = size or cluster.wal_size
    assert desired_size is not None
    key, labels = cluster.names.wal_pvc(ordinal), _labels(cluster, ordinal)
    return _pvc(key, labels, desired_size, cluster.wal_class, recorded="wal" in cluster.recorded_volumes)


def _labels(cluster: DeclaredCluster, ordinal: int) -> Mapping[str, str]:
    return {**instance_labels(cluster, ordinal), ENGINE_LABEL: cluster.engine, MAJOR_LABEL: cluster.version}


def _pvc(
    key: ObjectKey, labels: Mapping[str, str], size: Quantity, storage_class: str | None, *, recorded: bool
) -> core.PersistentVolumeClaim:
    """Return a PVC.

    Args:
        recorded: mark that it has the size of the others, whatever is declared.
    """
    annotations = {GROWN: Growth().as_annotation()} if recorded else {}
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
