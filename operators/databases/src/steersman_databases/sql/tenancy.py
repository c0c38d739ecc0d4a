"""Rights of a namespace on servers of other namespaces."""

from __future__ import annotations

from collections.abc import Iterable

from steersman.meta import Object
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.api.group import ALLOWED_NAMESPACES_ANNOTATION

ALL_NAMESPACES = "*"


def permits(allowed: Iterable[str], namespace: str, from_namespace: str) -> bool:
    """Return True if a list permits references from `from_namespace`.

    The object is in `namespace`.
    """
    return namespace == from_namespace or bool({ALL_NAMESPACES, from_namespace} & set(allowed))


def permits_by_annotation(target: Object, from_namespace: str) -> bool:
    """Like `permits`, for a Service or a Secret with the annotation."""
    reported = target.metadata.annotations.get(ALLOWED_NAMESPACES_ANNOTATION, "")
    return permits(reported.replace(",", " ").split(), target.metadata.namespace, from_namespace)


def is_cross_namespace(obj: Object, server_namespace: str | None) -> bool:
    """Return True if an object is in another namespace than its server.

    Args:
        obj: the object.
        server_namespace: None for a server without a namespace, where the administrator's Secret grants access.
    """
    return server_namespace is not None and server_namespace != obj.metadata.namespace


def forbidden_field(obj: Database | DatabaseUser) -> str:
    """Return a forbidden field of another namespace's object, or "".

    Ownership of the objects that it refers to is checked on the server.
    """
    declared_values = {"adopt": obj.spec.adopt}
    if isinstance(obj, DatabaseUser):
        declared_values |= {
            "createDatabase": obj.spec.create_database,
            "replication": obj.spec.replication,
            "bypassRowLevelSecurity": obj.spec.bypass_row_level_security,
            "a grant on the whole server": any(obj.is_on_server(grant) for grant in obj.spec.grants),
        }
    forbidden = next((name for name, value in declared_values.items() if value), "")
    return f"{forbidden} is only for objects from the cluster's own namespace" if forbidden else ""
