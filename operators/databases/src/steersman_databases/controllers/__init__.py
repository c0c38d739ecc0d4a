"""The controllers of the operator."""

from __future__ import annotations

from collections.abc import Callable

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Secret, Service
from steersman.cache import InformerOptions
from steersman.controller import generation_changed
from steersman.manager import Manager
from steersman_databases.api import Database
from steersman_databases.controllers.database import DatabaseReconciler
from steersman_databases.controllers.outcome import RECHECK_SECONDS
from steersman_databases.engines import Engine, engine_named
from steersman_databases.resources import MANAGED_BY, instance_of

_OURS = InformerOptions(label_selector=f"app.kubernetes.io/managed-by={MANAGED_BY}")


def setup(manager: Manager, engines: Callable[[str], Engine] = engine_named) -> None:
    """Adds the operator's controllers to ``manager``.

    Args:
        engines: finds an engine by its name; tests put models in their place.
    """
    for kind in (StatefulSet, Service, Secret, PersistentVolumeClaim, Pod):
        manager.cache.configure(kind, _OURS)
    (
        manager.controller(Database)
        .with_predicate(generation_changed)
        .owns(StatefulSet)
        .owns(Service)
        .watches(PersistentVolumeClaim, instance_of)
        .watches(Secret, instance_of)
        .watches(Pod, instance_of)
        .permits(StatefulSet, "create", "patch", "delete")
        .permits(Service, "create", "patch")
        .permits(PersistentVolumeClaim, "create", "patch", "delete")
        .permits(Secret, "create", "patch", "delete")
        .max_concurrent_reconciles(64)
        .max_retry_delay(RECHECK_SECONDS)
        .complete(lambda context: DatabaseReconciler(context, engines))
    )


__all__ = ["DatabaseReconciler", "setup"]
