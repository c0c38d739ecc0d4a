"""The controllers of the operator."""

from __future__ import annotations

from dataclasses import replace

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, Service
from steersman.cache import InformerOptions
from steersman.manager import Manager
from steersman.meta import metadata_only
from steersman_databases.controllers.cluster import ClusterReconciler
from steersman_databases.controllers.cluster_wiring import (
    CLUSTER_KINDS,
    PartsOf,
    mysql_parts,
    postgresql_parts,
    setup_clusters,
)
from steersman_databases.controllers.database import DatabaseReconciler
from steersman_databases.controllers.mysql import OfMySQL
from steersman_databases.controllers.parts import ClusterParts
from steersman_databases.controllers.postgresql import OfPostgreSQL
from steersman_databases.controllers.servers import ContentsOf
from steersman_databases.controllers.surveys import Surveys
from steersman_databases.controllers.wiring import setup_databases
from steersman_databases.engines import engine_named
from steersman_databases.engines.cluster import CLUSTER_DOMAIN
from steersman_databases.resources import MANAGED_BY

_OURS = InformerOptions(label_selector=f"app.kubernetes.io/managed-by={MANAGED_BY}")
# Members write to ours every two seconds.
_OF_OTHERS = InformerOptions(label_selector=f"app.kubernetes.io/managed-by!={MANAGED_BY}")


def setup(
    manager: Manager,
    contents: ContentsOf = engine_named,
    target: str | None = None,
    parts: PartsOf = postgresql_parts,
    mysql: PartsOf = mysql_parts,
    cluster_domain: str = CLUSTER_DOMAIN,
    operator_namespace: str = "",
) -> None:
    """Adds the operator's controllers to ``manager``.

    Args:
        contents: finds what is inside servers of an engine, by its name; tests put models in their place.
        target: a value of the label ``target``: only users who bear it; all for None.
        parts: PostgreSQL's part in clusters; likewise.
        mysql: MySQL's.
        cluster_domain: the DNS domain of Kubernetes' own names.
        operator_namespace: where this process runs; empty where nobody knows.
    """

    def there(made: PartsOf) -> PartsOf:
        return lambda context: replace(
            made(context), cluster_domain=cluster_domain, operator_namespace=operator_namespace
        )

    for kind in (StatefulSet, Service, Secret, PersistentVolumeClaim, Pod, *CLUSTER_KINDS):
        manager.cache.configure(kind, _OURS)
    manager.cache.configure(metadata_only(ConfigMap), _OF_OTHERS)
    surveys = Surveys(manager.runtime)
    setup_databases(manager, contents, surveys, target)
    setup_clusters(manager, OfPostgreSQL(), there(parts), contents, surveys)
    setup_clusters(manager, OfMySQL(), there(mysql), contents, surveys)


__all__ = ["ClusterParts", "ClusterReconciler", "DatabaseReconciler", "setup"]
