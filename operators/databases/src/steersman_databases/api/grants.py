"""What a user may do: grants on databases and what is in them, and memberships in roles."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman.meta import Field, FrozenStruct, Rule, at_most_one_of, schema
from steersman_databases.api.names import PRINTABLE, ObjectName, SqlName

Privilege = Literal[
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
"""Privileges of both engines. Which of them an object takes, the rules below and the operator say."""

ON_SERVER = (
    *("FLUSH_OPTIMIZER_COSTS", "FLUSH_STATUS", "PROCESS", "REPLICATION CLIENT"),
    *("RESOURCE_GROUP_USER", "SHOW DATABASES", "SHOW_ROUTINE", "SLAVE MONITOR"),
)
"""All that there is on the whole server of MySQL: the engine hands out nothing else."""

Objects = Annotated[tuple[ObjectName, ...], Field(min_items=1, max_items=64, list_type="set")]
Columns = Annotated[tuple[ObjectName, ...], Field(min_items=1, max_items=64, list_type="set")]
Routine = Annotated[str, Field(min_length=1, max_length=512, pattern=PRINTABLE)]
Routines = Annotated[tuple[Routine, ...], Field(min_items=1, max_items=64, list_type="set")]


def _only(condition: str, what: str, *privileges: str) -> Rule:
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
            message="sequences are in a schema: set schema",
            field_path=".sequences",
        ),
        Rule(
            rule="!has(self.future) || !self.future || [has(self.tables) && self.tables == ['*'], "
            "has(self.sequences) && self.sequences == ['*'], has(self.functions) && self.functions == ['*']]"
            ".exists(x, x)",
            message='future is for all of a schema: set tables, sequences or functions to ["*"]',
            field_path=".future",
        ),
        Rule(
            rule="!has(self.createdBy) || (has(self.future) && self.future)",
            message="createdBy says whose future objects are meant: set future",
            field_path=".createdBy",
        ),
        _only(
            "has(self.schema) && !has(self.tables) && !has(self.sequences) && !has(self.functions)",
            "a schema",
            "USAGE",
            "CREATE",
        ),
        _only("has(self.sequences)", "sequences", "USAGE", "SELECT", "UPDATE"),
        _only("has(self.functions)", "functions", "EXECUTE", "ALTER ROUTINE"),
        Rule(
            rule="!has(self.columns) || has(self.tables) && !('*' in self.tables)",
            message="columns are of tables by name: set tables",
            field_path=".columns",
        ),
        _only("has(self.columns)", "columns", "SELECT", "INSERT", "UPDATE", "REFERENCES"),
    ]
)
class Grant(FrozenStruct):
    """Privileges on a database, or on something in it. PostgreSQL has schemas; MySQL has tables in databases, and
    privileges on the whole server."""

    database: ObjectName
    """The database. On MySQL "*" is the whole server."""
    schema: ObjectName | None = None
    """PostgreSQL: the schema in it."""
    tables: Objects | None = None
    """Tables and views by name; "*" is each one."""
    columns: Columns | None = None
    """Columns of these tables, which the privileges are narrowed to."""
    sequences: Objects | None = None
    """PostgreSQL: sequences by name; "*" is each one."""
    functions: Routines | None = None
    """Functions and procedures; "*" is each one. PostgreSQL's with the types of their arguments, as in
    total(integer)."""
    privileges: Annotated[tuple[Privilege, ...], Field(min_items=1, max_items=37, list_type="set")]
    """What may be done; ALL is whatever the object knows."""
    with_grant_option: bool = False
    """Whether the user may hand it on. On MySQL that is had for all on this object at once."""
    future: bool = False
    """PostgreSQL: also for what createdBy will make in this schema."""
    created_by: Objects | None = None
    """PostgreSQL: whose future objects; the owner of the database unless given."""


class Membership(FrozenStruct):
    """A role that the user is a member of."""

    name: SqlName
    """The role."""
    admin: bool = False
    """Whether the user may let others in."""
    inherit: bool | None = None
    """Whether the role's rights are the user's without SET ROLE; the user's own inherit unless given. PostgreSQL 16
    and later, MySQL; MariaDB has one such role."""
    set: bool | None = None
    """PostgreSQL 16 and later: whether the user may SET ROLE to it; true unless given."""
