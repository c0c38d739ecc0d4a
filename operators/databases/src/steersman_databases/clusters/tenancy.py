"""Who may refer to what, and what a namespace that was let in may do on a server of another one."""

from __future__ import annotations

from collections.abc import Iterable

from steersman.meta import Object
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.api.group import ALLOWED_NAMESPACES

EVERYBODY = "*"


def lets_in(allowed: Iterable[str], home: str, guest: str) -> bool:
    """Whether objects of the namespace ``guest`` may refer to something in ``home``, which lets in ``allowed``."""
    return home == guest or bool({EVERYBODY, guest} & set(allowed))


def lets_in_by_annotation(target: Object, guest: str) -> bool:
    """As ``lets_in``, for a Service or a Secret."""
    told = target.metadata.annotations.get(ALLOWED_NAMESPACES, "")
    return lets_in(told.replace(",", " ").split(), target.metadata.namespace, guest)


def is_guest(of: Object, home: str | None) -> bool:
    """Whether an object is from another namespace than its server.

    Args:
        home: the server's namespace; None for a server that has none, whose administrator's Secret is leave enough.
    """
    return home is not None and home != of.metadata.namespace


def overreach(guest: Database | DatabaseUser) -> str:
    """Why a guest may not have what it declares, as a sentence; empty if it may.

    Whether that which it refers to is its own is seen on the server.
    """
    asked = {"adopt": guest.spec.adopt}
    if isinstance(guest, DatabaseUser):
        asked |= {
            "createDatabase": guest.spec.create_database,
            "replication": guest.spec.replication,
            "bypassRowLevelSecurity": guest.spec.bypass_row_level_security,
            "a grant on the whole server": any(guest.is_on_server(grant) for grant in guest.spec.grants),
        }
    beyond = next((name for name, value in asked.items() if value), "")
    return f"{beyond} is only for objects from the cluster's own namespace" if beyond else ""
