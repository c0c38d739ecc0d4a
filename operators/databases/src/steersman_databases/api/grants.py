"""Privileges and role memberships of a user."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman.meta import Field, FrozenStruct, Rule, at_most_one_of, schema
from steersman_databases.api.names import PRINTABLE, ObjectName, SqlName

PrivilegeName = Literal[
    "ALL",
    "CONNECT",
    "TEMPORARY",
    "CREATE",
    "USAGE",
    "SELECT",
    "INSERT",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "REFERENCES",
    "TRIGGER",
    "MAINTAIN",
    "EXECUTE",
    "ALTER ROUTINE",
    "ALTER",
    "DROP",
    "INDEX",
    "CREATE VIEW",
    "SHOW VIEW",
    "LOCK TABLES",
    "EVENT",
    "CREATE TEMPORARY TABLES",
    "CREATE ROUTINE",
    "DELETE HISTORY",
    "PROCESS",
    "REPLICATION CLIENT",
    "SHOW DATABASES",
    "SLAVE MONITOR",
    "FLUSH_OPTIMIZER_COSTS",
    "FLUSH_STATUS",
    "RESOURCE_GROUP_USER",
    "SHOW_ROUTINE",
]
"""Privileges of both engines. Rules below and the operator limit them by object."""

SERVER_PRIVILEGES = (
    *("FLUSH_OPTIMIZER_COSTS", "FLUSH_STATUS", "PROCESS", "REPLICATION CLIENT"),
    *("RESOURCE_GROUP_USER", "SHOW DATABASES", "SHOW_ROUTINE", "SLAVE MONITOR"),
)
"""Privileges on a whole MySQL server. The operator grants no others."""

ObjectNames = Annotated[tuple[ObjectName, ...], Field(min_items=1, max_items=64, list_type="set")]
ColumnNames = Annotated[tuple[ObjectName, ...], Field(min_items=1, max_items=64, list_type="set")]
Routine = Annotated[str, Field(min_length=1, max_length=512, pattern=PRINTABLE)]
RoutineNames = Annotated[tuple[Routine, ...], Field(min_items=1, max_items=64, list_type="set")]


def _only_where(condition: str, what: str, *privileges: str) -> Rule:
    known = ", ".join(repr(p) for p in ("ALL", *privileges))
    return Rule(
        rule=f"!({condition}) || self.privileges.all(p, p in [{known}])",
        message=f"the privileges on {what} are {', '.join(privileges)}, or ALL",
        field_path=".privileges",
    )


@schema(
    rules=[
        at_most_one_of("tables", "sequences", "functions"),
        Rule(
            rule="has(self.schema) || !has(self.sequences)",
            message="schema is required with sequences",
            field_path=".sequences",
        ),
        Rule(
            rule="!has(self.future) || !self.future || [has(self.tables) && self.tables == ['*'], "
            "has(self.sequences) && self.sequences == ['*'], has(self.functions) && self.functions == ['*']]"
            ".exists(x, x)",
            message='future needs all objects of a schema: set tables, sequences or functions to ["*"]',
            field_path=".future",
        ),
        Rule(
            rule="!has(self.createdBy) || (has(self.future) && self.future)",
            message="createdBy needs future: set future to true, or remove createdBy",
            field_path=".createdBy",
        ),
        _only_where(
            "has(self.schema) && !has(self.tables) && !has(self.sequences) && !has(self.functions)",
            "a schema",
            "USAGE",
            "CREATE",
        ),
        _only_where("has(self.sequences)", "sequences", "USAGE", "SELECT", "UPDATE"),
        _only_where("has(self.functions)", "functions", "EXECUTE", "ALTER ROUTINE"),
        Rule(
            rule="!has(self.columns) || has(self.tables) && !('*' in self.tables)",
            message="columns need tables by name: set tables",
            field_path=".columns",
        ),
        _only_where("has(self.columns)", "columns", "SELECT", "INSERT", "UPDATE", "REFERENCES"),
    ]
)
class PrivilegeGrant(FrozenStruct):
    """Privileges on a database or on objects in it.

    PostgreSQL has schemas. MySQL has tables in databases, and privileges on the whole server.
    """

    database: ObjectName
    """Database. On MySQL, "*" is the whole server."""
    schema: ObjectName | None = None
    """PostgreSQL: schema in the database."""
    tables: ObjectNames | None = None
    """Names of tables and views; "*" is all."""
    columns: ColumnNames | None = None
    """Columns of these tables. They limit the privileges."""
    sequences: ObjectNames | None = None
    """PostgreSQL: names of sequences; "*" is all."""
    functions: RoutineNames | None = None
    """Functions and procedures; "*" is all. On PostgreSQL, names include argument types, as in total(integer)."""
    privileges: Annotated[tuple[PrivilegeName, ...], Field(min_items=1, max_items=37, list_type="set")]
    """Privileges. ALL is every privilege of the object."""
    with_grant_option: Annotated[bool, Field(default=None)] = False
    """Allow the user to grant these privileges to others. On MySQL, the option applies to all privileges on the
    object. Defaults to false."""
    future: Annotated[bool, Field(default=None)] = False
    """PostgreSQL: also grant the privileges on future objects. Defaults to false.

    These are the objects that createdBy creates in this schema.
    """
    created_by: ObjectNames | None = None
    """PostgreSQL: creators of future objects. Defaults to the owner of the database."""


class RoleGrant(FrozenStruct):
    """Membership of the user in a role."""

    name: SqlName
    """Name of the role."""
    admin: Annotated[bool, Field(default=None)] = False
    """Allow the user to grant the role to others. Defaults to false."""
    inherit: bool | None = None
    """Use the role's privileges without SET ROLE. Defaults to ``inherit`` of the user. It needs PostgreSQL 16 or
    later, or MySQL. MariaDB supports it for one role."""
    set: bool | None = None
    """PostgreSQL 16 and later: allow SET ROLE to the role. Defaults to true."""
