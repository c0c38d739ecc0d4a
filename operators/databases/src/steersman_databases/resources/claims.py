"""The volume claims of an instance: they live as long as their data, so nothing owns them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from steersman.api.apply import core, meta
from steersman.meta import ObjectKey, Quantity
from steersman_databases.clusters.observed import MAJOR_LABEL
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.resources.labels import instance_labels

ENGINE_LABEL = "databases.steersman.dev/engine"
"""Says which engine's data is on a volume, so that retained data is never given to another engine."""


def data_claim(cluster: ClusterView, number: int, size: Quantity | None = None) -> core.PersistentVolumeClaim:
    """The claim of an instance's data, of ``size`` where it should not be as declared."""
    key, wanted = cluster.names.data_claim(number), size or cluster.storage_size
    return _claim(key, _labels(cluster, number), wanted, cluster.storage_class)


def wal_claim(cluster: ClusterView, number: int, size: Quantity | None = None) -> core.PersistentVolumeClaim:
    """The claim of its write-ahead log; only for a cluster that has a ``wal_size``."""
    wanted = size or cluster.wal_size
    assert wanted is not None
    return _claim(cluster.names.wal_claim(number), _labels(cluster, number), wanted, cluster.wal_class)


def _labels(cluster: ClusterView, number: int) -> Mapping[str, str]:
    return {**instance_labels(cluster, number), ENGINE_LABEL: cluster.engine, MAJOR_LABEL: cluster.version}


def _claim(
    key: ObjectKey, labels: Mapping[str, str], size: Quantity, storage_class: str | None
) -> core.PersistentVolumeClaim:
    return core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels),
        spec=core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            storage_class_name=UNSET if storage_class is None else storage_class,
            resources=core.VolumeResourceRequirements(requests={"storage": str(size)}),
        ),
    )
