"""What may be granted on MySQL and MariaDB.

Privileges are held per level: on the server, a database, a table, a column, a routine. There are no owners; who is
to own a database holds every privilege on it, and stands beside its mark. Sources: MySQL Reference Manual, 8.2.2
"Privileges Provided by MySQL"; MariaDB Knowledge Base, GRANT.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..desired import ALL, EACH, DesiredUser, ObjectKind
from ..granting import Granting
from ..survey import PUBLIC, Privilege, SecuredObject, Survey

EVERYWHERE = EACH
"""In a database's place: the whole server."""

MARIADBS_PUBLIC = "PUBLIC"
EVERYBODY = (PUBLIC, MARIADBS_PUBLIC)
"""Who has what each user has: on whole databases nobody's name, and a role of MariaDB's."""

REPLICATION = "REPLICATION SLAVE"
"""Reads every change of every database. Had by the field `replication` alone."""

ON_SERVER = frozenset({"PROCESS", "REPLICATION CLIENT", "SHOW DATABASES"})
ON_MYSQL_SERVER = frozenset({"FLUSH_OPTIMIZER_COSTS", "FLUSH_STATUS", "RESOURCE_GROUP_USER", "SHOW_ROUTINE"})
ON_MARIADB_SERVER = frozenset({"SLAVE MONITOR"})
HARMLESS = ON_SERVER | ON_MYSQL_SERVER | ON_MARIADB_SERVER
"""All that is handed out on the whole server: it watches, and changes nothing.

With any other one could read the passwords' verifiers in `mysql`, change them, act as somebody else, or, as with
RELOAD, which also resets the binary log, take the server from others. BACKUP_ADMIN and FLUSH_TABLES lock it, so that
nobody's account could be changed; FLUSH_USER_RESOURCES starts the hours of limits anew.
"""

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
    mariadb = survey.product == "MariaDB"
    more = frozenset({HISTORY}) if mariadb else frozenset[str]()
    return {
        ObjectKind.SERVER: ON_SERVER | (ON_MARIADB_SERVER if mariadb else ON_MYSQL_SERVER),
        ObjectKind.DATABASE: ON_DATABASES | more,
        ObjectKind.TABLE: ON_TABLES | more,
        ObjectKind.FUNCTION: ON_ROUTINES,
    }


def _acting(_: Survey, __: str, ___: str) -> str:
    """Nobody: there are no grantors."""
    return ""


def _automatic(survey: Survey, desired: DesiredUser, privilege: Privilege) -> bool:
    """What comes by owning a database, by the field `replication`, or by having created a routine."""
    if privilege.on.kind is ObjectKind.SERVER:
        return desired.replication and privilege.privilege == REPLICATION and not privilege.grantable
    database = privilege.on.database
    owns = (state := survey.databases.get(database)) is not None and state.marked_owner == desired.name
    if privilege.on.kind is not ObjectKind.FUNCTION:
        # Neither what a pattern of names gives, nor the right to pass on.
        everything = vocabulary(survey)[ObjectKind.DATABASE]
        on = SecuredObject(ObjectKind.DATABASE, database)
        return owns and privilege.on == on and privilege.privilege in everything
    # The server gives them to whoever creates one, and does not remember who it was (automatic_sp_privileges).
    creates = any(
        one.kind is ObjectKind.DATABASE and one.database == database and one.privileges & {ALL, "CREATE ROUTINE"}
        for one in desired.grants
    )
    return privilege.privilege in ON_ROUTINES and (creates or owns)


def _spelled(on: SecuredObject) -> str:
    """A function and a procedure may have one name; a grant means both."""
    return on.name or ""


GRANTING = Granting(vocabulary, _acting, _automatic, _spelled, option_apart=True)
