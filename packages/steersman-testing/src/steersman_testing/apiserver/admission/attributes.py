"""Admission attributes of requests."""

from __future__ import annotations

from steersman.meta import ApiResource
from steersman_testing.apiserver.admission.webhooks import AdmissionAttributes, AdmissionOperation
from steersman_testing.apiserver.kinds import NAMESPACE
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.requests.routes import Route


def admission_attributes(
    route: Route,
    operation: AdmissionOperation,
    options: WriteOptions,
    name: str,
    object_kind: ApiResource | None = None,
) -> AdmissionAttributes:
    """Return the admission attributes of a write to the object ``name``.

    Args:
        object_kind: the kind of the body if it is not that of the route, such as Eviction.
    """
    resource, namespace = route.kind.resource, _admission_namespace(route, name)
    options_wire = options.to_wire()
    return AdmissionAttributes(
        operation,
        resource,
        route.subresource,
        namespace,
        name,
        options.user,
        options.dry_run,
        options_wire,
        object_kind,
    )


def _admission_namespace(route: Route, name: str) -> str:
    """Return the namespace of an operation. A Namespace is in itself."""
    return name if route.kind.resource == NAMESPACE else route.namespace
