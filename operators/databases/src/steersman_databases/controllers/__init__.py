"""The controllers of the operator."""

from __future__ import annotations

from collections.abc import Callable

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Secret, Service
from steersman.cache import InformerOptions
from steersman.manager import Manager
from steersman_databases.controllers.cluster_wiring import CLUSTER_KINDS, PartsOf, postgresql_parts, setup_clusters
from steersman_databases.controllers.database import DatabaseReconciler
from steersman_databases.controllers.postgresql import ClusterParts, PostgreSQLClusterReconciler
from steersman_databases.controllers.servers import ContentsOf
from steersman_databases.controllers.wiring import contents_named, setup_databases
from steersman_databases.engines import Engine, engine_named
from steersman_databases.resources import MANAGED_BY

_OURS = InformerOptions(label_selector=f"app.kubernetes.io/managed-by={MANAGED_BY}")


def setup(
    manager: Manager,
    engines: Callable[[str], Engine] = engine_named,
    contents: ContentsOf = contents_named,
    target: str | None = None,
    parts: PartsOf = postgresql_parts,
) -> None:
    """Adds the operator's controllers to ``manager``.

    Args:
        engines: finds an engine by its name; tests put models in their place.
        contents: finds what is inside servers of an engine; likewise.
        target: a value of the label ``target``: only users who bear it; all for None.
        parts: an engine's part in clusters; likewise.
    """
    for kind in (StatefulSet, Service, Secret, PersistentVolumeClaim, Pod, *CLUSTER_KINDS):
        manager.cache.configure(kind, _OURS)
    setup_databases(manager, engines, contents, target)
    setup_clusters(manager, parts)


__all__ = ["ClusterParts", "DatabaseReconciler", "PostgreSQLClusterReconciler", "setup"]
