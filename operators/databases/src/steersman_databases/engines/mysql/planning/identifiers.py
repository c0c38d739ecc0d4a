"""Valid names on MySQL and MariaDB."""

from __future__ import annotations

from steersman_databases.engines.connection.input_limits import MAX_MYSQL_PASSWORD_BYTES
from steersman_databases.engines.errors import InvalidName, NotSupported
from steersman_databases.engines.sql.desired import (
    ALL,
    ANY,
    EMPTY_TEMPLATE,
    DesiredDatabase,
    DesiredGrant,
    DesiredUser,
    SecurableKind,
)
from steersman_databases.engines.sql.identifiers import (
    check_grant,
    check_not_administrator,
    check_password,
    check_text,
)
from steersman_databases.engines.sql.inspection import Inspection

from .grants import HARMLESS

MAX_IDENTIFIER_CHARACTERS = 64
MAX_USER_CHARACTERS = 32
"""Maximal length of identifiers, and of usernames.

MariaDB accepts longer usernames, but names should work on both.
"""

MAX_FILE_NAME_BYTES = 255
"""Of ``caching_sha2_password``."""

RESERVED_DATABASES = frozenset({"mysql", "sys", "information_schema", "performance_schema", "ndbinfo", "steersman"})
RESERVED_USERS = frozenset({"root", "event_scheduler", "system user", "unauthenticated user", "delayed"})
RESERVED_ROLES = frozenset({"none", "public", "current_role", "current_user"})
RESERVED_USER_PREFIXES = ("mysql.", "mariadb.", "steersman_")
RAW_FILE_NAME_PREFIX = "#mysql50#"


def check_database(desired: DesiredDatabase) -> None:
    """Refuse a database that MySQL does not support or reserves.

    Source: MySQL Reference Manual, 11.2 "Schema Object Names", 11.2.4 "Mapping of Identifiers to File Names".

    Raises `InvalidName`, `NotSupported`.
    """
    _check_name("databaseName", desired.name, MAX_IDENTIFIER_CHARACTERS)
    _check_database(desired.name)
    _check_name("owner", desired.owner, MAX_USER_CHARACTERS)
    for field, descriptions in (("encoding", desired.encoding), ("collation", desired.collation)):
        if descriptions is not None:
            check_name(field, descriptions)
    for field, given in (
        ("characterType", desired.character_type is not None),
        ("localeProvider", desired.locale_provider is not None),
        ("template", desired.template not in ("", EMPTY_TEMPLATE)),
        ("connectionLimit", desired.connection_limit != -1),
        ("extensions", bool(desired.extensions)),
        ("schemas", bool(desired.schemas)),
    ):
        if given:
            raise NotSupported(field, "MySQL's databases have none")


def check_user(desired: DesiredUser, administrator: str) -> None:
    """Refuse a user that MySQL does not support or reserves.

    Source: MySQL Reference Manual, 8.2.4 "Specifying Account Names", 8.2.9 "Reserved Accounts".

    Raises `InvalidName`, `NotSupported`.
    """
    _check_account("username", desired.name, administrator)
    for password in (desired.password, desired.second_credential.password if desired.second_credential else None):
        if isinstance(password, str):
            check_password(password, MAX_MYSQL_PASSWORD_BYTES)
    for field, given, reason in (
        (
            "createDatabase",
            desired.create_database,
            "on MySQL the privilege to create databases applies to all databases",
        ),
        ("bypassRowLevelSecurity", desired.bypass_row_level_security, "MySQL has no row-level security"),
        ("connectionLimit", desired.connection_limit == 0, "0 means unlimited on MySQL: set login to false instead"),
    ):
        if given:
            raise NotSupported(field, reason)
    for membership in desired.roles:
        _check_account("roles", membership.role, administrator)
        if membership.set_role is False:
            raise NotSupported("roles", "on MySQL a member of a role can always set it: remove set")
    for grant in desired.grants:
        _check_grant(grant)


def check_lower_case(desired: DesiredDatabase | DesiredUser, inspection: Inspection) -> None:
    """Refuse capitals if the server converts names to lower case.

    The object would not be found by its name, and could be another owner's under the other name.

    Raises `InvalidName`.
    """
    if isinstance(desired, DesiredDatabase):
        named = [("databaseName", desired.name)]
    else:
        grants = [grant for grant in desired.grants if grant.kind is not SecurableKind.SERVER]
        named = [("grants", grant.database) for grant in grants]
        named += [("grants", name) for grant in grants if grant.kind is SecurableKind.TABLE for name in grant.names]
    for field, name in named:
        if inspection.lower_case_names and name != name.lower():
            raise InvalidName(field, name, f"this server stores names in lower case: write {name.lower()}")


def _check_account(field: str, name: str, administrator: str) -> None:
    _check_name(field, name, MAX_USER_CHARACTERS)
    lowered = name.lower()
    if lowered in RESERVED_USERS or lowered.startswith(RESERVED_USER_PREFIXES):
        raise InvalidName(field, name, "MySQL reserves this user: choose another username")
    if lowered in RESERVED_ROLES:
        raise InvalidName(field, name, "MariaDB reserves it as a keyword for roles: choose another name")
    check_not_administrator(name, administrator)


def _check_grant(grant: DesiredGrant) -> None:
    check_grant(grant)
    for name in (grant.database, *grant.names, *grant.columns):
        check_name("grants", name)
    if grant.kind is SecurableKind.SERVER:
        if unsupported := grant.privileges - HARMLESS - {ALL}:
            raise NotSupported("grants", f"{' and '.join(sorted(unsupported))} cannot be granted on the whole server")
        if grant.with_grant_option:
            raise NotSupported("grants", "privileges on the whole server cannot have a grant option")
        return
    if grant.database.lower() in RESERVED_DATABASES or grant.database == ANY:
        raise InvalidName("grants", grant.database, "it contains system tables: choose another database")
    if grant.schema is not None or grant.future or grant.kind in (SecurableKind.SCHEMA, SecurableKind.SEQUENCE):
        raise NotSupported("grants", "MySQL has no schemas and sequences, and no grants on future objects")


def check_name(field: str, value: str) -> None:
    """Refuse an invalid identifier. Raises `InvalidName`."""
    _check_name(field, value, MAX_IDENTIFIER_CHARACTERS)


def _check_name(field: str, value: str, max_length: int) -> None:
    check_text(field, value)
    if len(value) > max_length:
        raise InvalidName(
            field, value, f"it has {len(value)} characters, and MySQL supports {max_length}: choose a shorter one"
        )
    for character in value:
        if ord(character) > 0xFFFF:
            raise InvalidName(
                field,
                value,
                f"MySQL does not support U+{ord(character):04X} in names (emoji and rare scripts): remove it",
            )
    if value.endswith(" "):
        raise InvalidName(field, value, "MySQL removes trailing spaces: remove them")


def _check_database(database: str) -> None:
    if database.lower() in RESERVED_DATABASES:
        raise InvalidName("databaseName", database, "MySQL reserves this database: choose another name")
    if database.lower().startswith(RAW_FILE_NAME_PREFIX):
        raise InvalidName(
            "databaseName", database, f'MySQL reads "{RAW_FILE_NAME_PREFIX}" as a file name: choose another name'
        )
    # The server creates a directory of this name, and encodes other than plain letters as "@" and four digits.
    file_name = sum(
        1 if character.isascii() and (character.isalnum() or character == "_") else 5 for character in database
    )
    if file_name > MAX_FILE_NAME_BYTES:
        raise InvalidName(
            "databaseName",
            database,
            "it has too many special characters for a directory name: choose a shorter one",
        )
