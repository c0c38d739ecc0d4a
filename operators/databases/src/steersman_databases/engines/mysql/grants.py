"""What may be granted on MySQL and MariaDB.

Privileges are held per level: on a database, a table, a column, a routine. There are no owners; who is to own a
database holds every privilege on it. Sources: MySQL Reference Manual, 8.2.2 "Privileges Provided by MySQL"; MariaDB
Knowledge Base, GRANT.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..desired import DesiredUser, ObjectKind
from ..granting import Granting
from ..survey import Privilege, Survey

EVERYWHERE = "*"
"""In a database's place: the whole server."""

ON_DATABASES = frozenset(
    {"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REFERENCES", "INDEX", "ALTER"}
    | {"CREATE TEMPORARY TABLES", "LOCK TABLES", "CREATE VIEW", "SHOW VIEW", "CREATE ROUTINE", "ALTER ROUTINE"}
    | {"EXECUTE", "EVENT", "TRIGGER"}
)
ON_TABLES = frozenset(
    {"SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REFERENCES", "INDEX", "ALTER"}
    | {"CREATE VIEW", "SHOW VIEW", "TRIGGER"}
)
ON_ROUTINES = frozenset({"EXECUTE", "ALTER ROUTINE"})
HISTORY = "DELETE HISTORY"
"""MariaDB's alone, on databases and tables."""


def vocabulary(survey: Survey) -> Mapping[ObjectKind, frozenset[str]]:
    """The privileges of this server, by the kind of object."""
    more = frozenset({HISTORY}) if survey.product == "MariaDB" else frozenset[str]()
    return {
        ObjectKind.DATABASE: ON_DATABASES | more,
        ObjectKind.TABLE: ON_TABLES | more,
        ObjectKind.FUNCTION: ON_ROUTINES,
    }


def _acting(_: Survey, __: str, owner: str) -> str:
    return owner


def _automatic(desired: DesiredUser, privilege: Privilege) -> bool:
    return privilege.on.kind is ObjectKind.DATABASE and privilege.on.database in desired.owns


GRANTING = Granting(vocabulary, _acting, _automatic)
