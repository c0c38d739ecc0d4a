"""State of a ``Database`` that its dumps depend on. Pure."""

from __future__ import annotations

from steersman.meta import find_condition
from steersman_databases.api import Database
from steersman_databases.features.dump.connection import NotConnectable, connection_of


def dump_blocker(database: Database) -> str:
    """Return why a database cannot be dumped now, or an empty string."""
    name = f"Database {database.metadata.name}"
    if database.spec.server_ref is None:
        return f"{name} has no serverRef. Back up its cluster"
    try:
        connection_of(database)
    except NotConnectable as error:
        return str(error)
    if database.status.backup is None or database.status.backup.path is None:
        return f"the object store of {name} is not ready yet"
    if database.metadata.deletion_timestamp is not None:
        return ""
    ready = find_condition(database.status.conditions, "Ready")
    if ready is None or ready.status != "True":
        return f"{name} is not ready: {'' if ready is None else ready.message}"
    return ""
