"""Valid names on PostgreSQL."""

from __future__ import annotations

import re

from steersman_databases.engines.connection.input_limits import MAX_POSTGRESQL_PASSWORD_BYTES
from steersman_databases.engines.errors import InvalidName, NotSupported
from steersman_databases.engines.sql.desired import (
    DesiredDatabase,
    DesiredGrant,
    DesiredUser,
    PasswordDirective,
    SecurableKind,
)
from steersman_databases.engines.sql.identifiers import check_grant, check_password, check_text

MAX_IDENTIFIER_BYTES = 63
"""Bytes of UTF-8 in an identifier.

The server truncates longer ones silently, which could make two names equal.
"""

RESERVED_DATABASES = frozenset({"postgres", "template0", "template1"})
RESERVED_USERS = frozenset({"postgres", "public", "none"})
RESERVED_PREFIX = "steersman_"
"""Prefix of the operator's own roles."""

ROTATION_SUFFIX = "~"

FORBIDDEN_ROLES = frozenset({"pg_execute_server_program", "pg_read_server_files", "pg_write_server_files"})
"""Predefined roles with access to the server's files or programs.

Their members have all rights of the server's process.
"""


def rotation_role_name(username: str) -> str:
    """Return the role with a user's second credential.

    It exists if the user's password rotates.
    """
    return username + ROTATION_SUFFIX


_TYPE = re.compile(r"""(?:[^",]|"(?:[^"]|"")*")+""")


def normalize_argument_types(types: str) -> str:
    """Return the argument types of a routine in an unambiguous form.

    Without a mode they could also match all arguments of a procedure, including OUT arguments. With such a planted
    procedure ROUTINE would be ambiguous. Source: `LookupFuncWithArgs` in src/backend/parser/parse_func.c.
    """
    return ", ".join(f"IN {one.strip()}" for one in _TYPE.findall(types))


def check_database(desired: DesiredDatabase) -> None:
    """Refuse a database that PostgreSQL does not support or reserves.

    Source: PostgreSQL documentation, 4.1.1 "Identifiers and Key Words", 22.3 "Template Databases". Names are
    compared exactly: quoted identifiers keep their case.

    Raises `InvalidName`.
    """
    check_name("databaseName", desired.name)
    if desired.name in RESERVED_DATABASES:
        raise InvalidName("databaseName", desired.name, "PostgreSQL reserves this database: choose another name")
    check_name("owner", desired.owner)
    check_name("template", desired.template)
    for field, descriptions in (
        ("encoding", desired.encoding),
        ("collation", desired.collation),
        ("characterType", desired.character_type),
        ("locale", desired.locale),
    ):
        if descriptions is not None:
            check_text(field, descriptions)
    for schema in desired.schemas:
        check_name("schemas", schema.name)
        if schema.owner:
            check_name("schemas", schema.owner)
        if is_system_schema(schema.name):
            raise InvalidName("schemas", schema.name, "PostgreSQL reserves this schema: choose another name")
    for extension in desired.extensions:
        check_name("extensions", extension.name)
        if extension.schema is not None:
            check_name("extensions", extension.schema)
        if extension.version is not None:
            check_text("extensions", extension.version)
        if extension.name == "plpgsql" and not extension.present:
            reason = "every database needs it for grants and dropped users: remove it from the list"
            raise InvalidName("extensions", extension.name, reason)


def check_user(desired: DesiredUser, administrator: str) -> None:
    """Refuse a user that PostgreSQL does not support, or the operator's.

    Source: PostgreSQL documentation, CREATE ROLE, and 22.5 "Predefined Roles".

    Raises `InvalidName`, `NotSupported`.
    """
    check_username("username", desired.name, administrator)
    if desired.second_credential is not None:
        if len(rotation_role_name(desired.name).encode()) > MAX_IDENTIFIER_BYTES:
            raise InvalidName(
                "username", desired.name, f'"{rotation_role_name(desired.name)}" is too long for PostgreSQL'
            )
        if desired.replication or desired.bypass_row_level_security:
            raise NotSupported(
                "rotation", "replication and bypassRowLevelSecurity are not inherited by a second role"
            )
    for password in (
        desired.password,
        desired.second_credential.password if desired.second_credential else PasswordDirective.UNCHANGED,
    ):
        if isinstance(password, str):
            check_password(password, MAX_POSTGRESQL_PASSWORD_BYTES)
    for grant in desired.grants:
        _check_grant(grant)
    for membership in desired.roles:
        check_name("roles", membership.role)
        _check_not_reserved("roles", membership.role, administrator)
        if membership.role in FORBIDDEN_ROLES:
            raise InvalidName("roles", membership.role, "it grants control of the whole server: choose another role")


def check_username(field: str, username: str, administrator: str) -> None:
    """Refuse an invalid or reserved role name. Raises `InvalidName`."""
    check_name(field, username)
    if username in RESERVED_USERS:
        raise InvalidName(field, username, "PostgreSQL reserves this role: choose another username")
    if username.startswith("pg_"):
        raise InvalidName(field, username, 'PostgreSQL reserves the prefix "pg_": choose another username')
    if username.endswith(ROTATION_SUFFIX):
        raise InvalidName(
            field,
            username,
            f'names that end in "{ROTATION_SUFFIX}" are reserved for the second role of users with rotation',
        )
    _check_not_reserved(field, username, administrator)


def _check_grant(grant: DesiredGrant) -> None:
    check_grant(grant)
    if grant.schema is not None and is_system_schema(grant.schema):
        raise InvalidName("grants", grant.schema, "it contains system objects: choose another schema")
    schema = () if grant.schema is None else (grant.schema,)
    routines = grant.kind is SecurableKind.FUNCTION
    # The argument types follow the name of a routine.
    names = tuple(name.partition("(")[0] if routines else name for name in grant.names)
    for name in (grant.database, *schema, *names, *grant.columns, *grant.created_by):
        check_name("grants", name)


def is_system_role(role: str) -> bool:
    """Return True if a role belongs to PostgreSQL or the operator.

    Its rights extend beyond databases.
    """
    return role in RESERVED_USERS or role.startswith(("pg_", RESERVED_PREFIX))


def is_system_schema(schema: str) -> bool:
    """Return True if a schema belongs to PostgreSQL."""
    return schema.startswith("pg_") or schema == "information_schema"


def _check_not_reserved(field: str, username: str, administrator: str) -> None:
    if username == administrator:
        raise InvalidName(field, username, "it is the administrator of this server: choose another username")
    if username.startswith(RESERVED_PREFIX):
        raise InvalidName(field, username, f'names that begin with "{RESERVED_PREFIX}" are the operator\'s')


def check_name(field: str, value: str) -> None:
    """Refuse an invalid identifier. Raises `InvalidName`."""
    check_text(field, value)
    length = len(value.encode())
    if length > MAX_IDENTIFIER_BYTES:
        raise InvalidName(
            field,
            value,
            f"it has {length} bytes, and PostgreSQL supports {MAX_IDENTIFIER_BYTES}: choose a shorter one",
        )
