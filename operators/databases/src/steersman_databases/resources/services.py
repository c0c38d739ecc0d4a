"""Services: ``-primary`` for clients, and a headless one that gives the pod its name."""

from __future__ import annotations

from msgspec import UNSET

from steersman.api.apply.core_v1 import ServiceApply, ServicePortApply, ServiceSpecApply
from steersman.meta import ObjectKey, ObjectMetaApply
from steersman_databases.api import Database
from steersman_databases.resources.names import Names, labels_of, selector_of


def primary_service(database: Database, port: int) -> ServiceApply:
    """Where applications connect: the ready pod."""
    return _service(database, Names(database.key).primary_service, port, headless=False)


def headless_service(database: Database, port: int) -> ServiceApply:
    """Gives the pod a name of its own, before it is ready too."""
    return _service(database, Names(database.key).headless_service, port, headless=True)


def _service(database: Database, key: ObjectKey, port: int, *, headless: bool) -> ServiceApply:
    return ServiceApply(
        metadata=ObjectMetaApply(name=key.name, namespace=key.namespace, labels=labels_of(database)),
        spec=ServiceSpecApply(
            type="ClusterIP",
            cluster_ip="None" if headless else UNSET,
            publish_not_ready_addresses=headless,
            selector=selector_of(database),
            ports=[ServicePortApply(name=database.engine, port=port, target_port=port, protocol="TCP")],
        ),
    )
