"""Which names PostgreSQL takes."""

from __future__ import annotations

import re

from ..desired import DesiredDatabase, DesiredGrant, DesiredUser, NoPassword, ObjectKind
from ..errors import InvalidName, NotSupported
from ..names import check_grant, check_password, check_text

LONGEST = 63
"""Bytes of UTF-8 in an identifier. The server cuts longer ones off silently, and so would mix up two names."""

RESERVED_DATABASES = frozenset({"postgres", "template0", "template1"})
RESERVED_USERS = frozenset({"postgres", "public", "none"})
RESERVED_PREFIX = "steersman_"
"""Begins the names of the operator's own roles."""

DEPUTY = "~"

NOBODYS = frozenset({"pg_execute_server_program", "pg_read_server_files", "pg_write_server_files"})
"""Predefined roles that reach the server's file system or start programs: with them one is the server."""


def deputy_name(username: str) -> str:
    """The role that holds the second credential of a user whose password rotates."""
    return username + DEPUTY


_TYPE = re.compile(r"""(?:[^",]|"(?:[^"]|"")*")+""")


def arguments(types: str) -> str:
    """The types of a routine's arguments, as the server writes them, so that they name this routine and no other.

    Without a mode they could also be all arguments of a procedure, with those that it gives back: where somebody
    planted such a one, ROUTINE would name neither. Source: `LookupFuncWithArgs` in src/backend/parser/parse_func.c.
    """
    return ", ".join(f"IN {one.strip()}" for one in _TYPE.findall(types))


def check_database(desired: DesiredDatabase) -> None:
    """Refuse what PostgreSQL cannot take as a database, or keeps for itself.

    Source: PostgreSQL documentation, 4.1.1 "Identifiers and Key Words", 22.3 "Template Databases". Names are
    compared exactly: quoted identifiers keep their case.

    Raises `InvalidName`.
    """
    check_name("databaseName", desired.name)
    if desired.name in RESERVED_DATABASES:
        raise InvalidName(
            "databaseName", desired.name, "PostgreSQL keeps this database for itself; choose another name"
        )
    check_name("owner", desired.owner)
    check_name("template", desired.template)
    for field, words in (
        ("encoding", desired.encoding),
        ("collation", desired.collation),
        ("characterType", desired.character_type),
    ):
        if words is not None:
            check_text(field, words)
    for schema in desired.schemas:
        check_name("schemas", schema.name)
        if schema.owner:
            check_name("schemas", schema.owner)
        if is_system_schema(schema.name):
            raise InvalidName("schemas", schema.name, "PostgreSQL keeps this schema for itself; choose another name")
    for extension in desired.extensions:
        check_name("extensions", extension.name)
        if extension.schema is not None:
            check_name("extensions", extension.schema)
        if extension.version is not None:
            check_text("extensions", extension.version)
        if extension.name == "plpgsql" and not extension.present:
            reason = "every database needs it for what is granted in it and for who is dropped; leave it out"
            raise InvalidName("extensions", extension.name, reason)


def check_user(desired: DesiredUser, administrator: str) -> None:
    """Refuse what PostgreSQL cannot take as a user, or what would be the operator.

    Source: PostgreSQL documentation, CREATE ROLE, and 22.5 "Predefined Roles".

    Raises `InvalidName`, `NotSupported`.
    """
    check_username("username", desired.name, administrator)
    if desired.second is not None:
        if len(deputy_name(desired.name).encode()) > LONGEST:
            raise InvalidName("username", desired.name, f'"{deputy_name(desired.name)}" is too long for PostgreSQL')
        if desired.replication or desired.bypass_row_level_security:
            raise NotSupported("rotation", "replication and bypassRowLevelSecurity do not pass to a second role")
    for password in (desired.password, desired.second.password if desired.second else NoPassword.UNCHANGED):
        if isinstance(password, str):
            check_password(password)
    for grant in desired.grants:
        _check_grant(grant)
    for membership in desired.roles:
        check_name("roles", membership.role)
        _check_not_the_operators("roles", membership.role, administrator)
        if membership.role in NOBODYS:
            raise InvalidName("roles", membership.role, "who has it has the whole server; choose another role")


def check_username(field: str, username: str, administrator: str) -> None:
    """Refuse what cannot be a role's name, or is somebody's already. Raises `InvalidName`."""
    check_name(field, username)
    if username in RESERVED_USERS:
        raise InvalidName(field, username, "PostgreSQL keeps this role for itself; choose another username")
    if username.startswith("pg_"):
        raise InvalidName(
            field, username, 'PostgreSQL keeps roles that begin with "pg_" for itself; choose another username'
        )
    if username.endswith(DEPUTY):
        raise InvalidName(
            field, username, f'names that end in "{DEPUTY}" are for the second login of users whose password rotates'
        )
    _check_not_the_operators(field, username, administrator)


def _check_grant(grant: DesiredGrant) -> None:
    check_grant(grant)
    if grant.schema is not None and is_system_schema(grant.schema):
        raise InvalidName("grants", grant.schema, "what is in it is PostgreSQL's own; name another schema")
    schema = () if grant.schema is None else (grant.schema,)
    routines = grant.kind is ObjectKind.FUNCTION
    # Behind a routine's name are the types of its arguments.
    names = tuple(name.partition("(")[0] if routines else name for name in grant.names)
    for name in (grant.database, *schema, *names, *grant.columns, *grant.created_by):
        check_name("grants", name)


def is_the_servers(role: str) -> bool:
    """Whether a role is PostgreSQL's or the operator's own: who acts with its rights is beyond databases."""
    return role in RESERVED_USERS or role.startswith(("pg_", RESERVED_PREFIX))


def is_system_schema(schema: str) -> bool:
    """Whether a schema is PostgreSQL's own."""
    return schema.startswith("pg_") or schema == "information_schema"


def _check_not_the_operators(field: str, username: str, administrator: str) -> None:
    if username == administrator:
        raise InvalidName(field, username, "it is this server's administrator; choose another username")
    if username.startswith(RESERVED_PREFIX):
        raise InvalidName(field, username, f'names that begin with "{RESERVED_PREFIX}" are the operator\'s')


def check_name(field: str, value: str) -> None:
    """Refuse what can be the name of nothing on PostgreSQL. Raises `InvalidName`."""
    check_text(field, value)
    length = len(value.encode())
    if length > LONGEST:
        raise InvalidName(
            field, value, f"it is {length} bytes long and PostgreSQL takes {LONGEST}; choose a shorter one"
        )
