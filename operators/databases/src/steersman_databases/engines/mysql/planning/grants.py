"""Grantable privileges on MySQL and MariaDB.

Privileges exist per level: on the server, a database, a table, a column, a routine. There are no owners. The
declared owner of a database holds each privilege on it and is stored with its mark. Sources: MySQL Reference
Manual, 8.2.2 "Privileges Provided by MySQL"; MariaDB Knowledge Base, GRANT.
"""

from __future__ import annotations

from collections.abc import Mapping

from steersman_databases.engines.sql.desired import ALL, ANY, DesiredUser, SecurableKind
from steersman_databases.engines.sql.grant_planner import GrantDialect
from steersman_databases.engines.sql.inspection import PUBLIC, HeldPrivilege, Inspection, SecuredObject

ANY_DATABASE = ANY
"""Stands for the whole server instead of a database."""

MARIADB_PUBLIC = "PUBLIC"
PUBLIC_ROLES = (PUBLIC, MARIADB_PUBLIC)
"""Grantees that stand for all users.

On whole databases this is the empty username, and on MariaDB also a role.
"""

REPLICATION = "REPLICATION SLAVE"
"""Privilege to read each change of every database.

Only the field `replication` grants it.
"""

ON_SERVER = frozenset({"PROCESS", "REPLICATION CLIENT", "SHOW DATABASES"})
ON_MYSQL_SERVER = frozenset({"FLUSH_OPTIMIZER_COSTS", "FLUSH_STATUS", "RESOURCE_GROUP_USER", "SHOW_ROUTINE"})
ON_MARIADB_SERVER = frozenset({"SLAVE MONITOR"})
HARMLESS = ON_SERVER | ON_MYSQL_SERVER | ON_MARIADB_SERVER
"""All grantable privileges on the whole server.

They allow reading and no changes.

With others a user could read or change verifiers in `mysql`, act as another user, or disturb other users: RELOAD
also resets the binary log. BACKUP_ADMIN and FLUSH_TABLES lock the server, so that no account could be changed.
FLUSH_USER_RESOURCES resets the hourly limits.
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
DELETE_HISTORY = "DELETE HISTORY"
"""Exists on MariaDB only, for databases and tables."""


def privileges_of(inspection: Inspection) -> Mapping[SecurableKind, frozenset[str]]:
    """Return the privileges of this server by the kind of object."""
    mariadb = inspection.product == "MariaDB"
    more = frozenset({DELETE_HISTORY}) if mariadb else frozenset[str]()
    return {
        SecurableKind.SERVER: ON_SERVER | (ON_MARIADB_SERVER if mariadb else ON_MYSQL_SERVER),
        SecurableKind.DATABASE: ON_DATABASES | more,
        SecurableKind.TABLE: ON_TABLES | more,
        SecurableKind.FUNCTION: ON_ROUTINES,
    }


def _grantor_role(_: Inspection, __: str, ___: str) -> str:
    """Return no role, because there are no grantors."""
    return ""


def _is_implicit(inspection: Inspection, desired: DesiredUser, privilege: HeldPrivilege) -> bool:
    """Return True if ownership, `replication` or a created routine implies it."""
    if privilege.target.kind is SecurableKind.SERVER:
        return desired.replication and privilege.privilege == REPLICATION and not privilege.grantable
    database = privilege.target.database
    owns = (state := inspection.databases.get(database)) is not None and state.marked_owner == desired.name
    if privilege.target.kind is not SecurableKind.FUNCTION:
        # Privileges by a pattern, and the grant option, are not implied.
        all_privileges = privileges_of(inspection)[SecurableKind.DATABASE]
        target = SecuredObject(SecurableKind.DATABASE, database)
        return owns and privilege.target == target and privilege.privilege in all_privileges
    # The server grants these to the creator of a routine without recording the creator (automatic_sp_privileges).
    creates = any(
        one.kind is SecurableKind.DATABASE and one.database == database and one.privileges & {ALL, "CREATE ROUTINE"}
        for one in desired.grants
    )
    return privilege.privilege in ON_ROUTINES and (creates or owns)


def _spell(target: SecuredObject) -> str:
    """Return the name.

    A grant covers a function and a procedure of this name.
    """
    return target.name or ""


GRANT_DIALECT = GrantDialect(privileges_of, _grantor_role, _is_implicit, _spell, separate_grant_option=True)
