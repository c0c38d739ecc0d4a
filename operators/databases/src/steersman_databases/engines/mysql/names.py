"""Which names MySQL and MariaDB take."""

from __future__ import annotations

from ..desired import DesiredDatabase, DesiredGrant, DesiredUser, ObjectKind
from ..errors import InvalidName, NotSupported
from ..names import check_not_administrator, check_password, check_text

LONGEST_DATABASE = 64
LONGEST_USER = 32
"""Characters. MariaDB takes longer users; names that only one of the two takes are no good."""

LONGEST_FILE_NAME = 255

RESERVED_DATABASES = frozenset({"mysql", "sys", "information_schema", "performance_schema", "ndbinfo", "steersman"})
RESERVED_USERS = frozenset({"root"})
RESERVED_USER_PREFIXES = ("mysql.", "mariadb.")
RAW_FILE_NAME_PREFIX = "#mysql50#"


def check_database(desired: DesiredDatabase) -> None:
    """Refuse what MySQL cannot take as a database, or keeps for itself, and what it does not have.

    Source: MySQL Reference Manual, 11.2 "Schema Object Names", 11.2.4 "Mapping of Identifiers to File Names".

    Raises `InvalidName`, `NotSupported`.
    """
    _check_name("databaseName", desired.name, LONGEST_DATABASE)
    _check_database(desired.name)
    _check_name("owner", desired.owner, LONGEST_USER)
    for field, given in (
        ("characterType", desired.character_type is not None),
        ("template", desired.template not in ("", "template0")),
        ("connectionLimit", desired.connection_limit != -1),
        ("extensions", bool(desired.extensions)),
        ("schemas", bool(desired.schemas)),
    ):
        if given:
            raise NotSupported(field, "MySQL's databases have none")


def check_user(desired: DesiredUser, administrator: str) -> None:
    """Refuse what MySQL cannot take as a user, or keeps for itself, and what it does not have.

    Source: MySQL Reference Manual, 8.2.4 "Specifying Account Names", 8.2.9 "Reserved Accounts".

    Raises `InvalidName`, `NotSupported`.
    """
    _check_name("username", desired.name, LONGEST_USER)
    lowered = desired.name.lower()
    if lowered in RESERVED_USERS or lowered.startswith(RESERVED_USER_PREFIXES):
        raise InvalidName("username", desired.name, "MySQL keeps this user for itself; choose another username")
    check_not_administrator(desired.name, administrator)
    for password in (desired.password, desired.second.password if desired.second else None):
        if isinstance(password, str):
            check_password(password)
    for field, given in (
        ("createDatabase", desired.create_database),
        ("replication", desired.replication),
        ("bypassRowLevelSecurity", desired.bypass_row_level_security),
        ("inherit", not desired.inherit),
        ("validUntil", desired.valid_until is not None),
        ("roles", bool(desired.roles)),
    ):
        if given:
            raise NotSupported(field, "the operator has it for PostgreSQL only")
    for grant in desired.grants:
        _check_grant(grant)


def _check_grant(grant: DesiredGrant) -> None:
    if grant.database.lower() in RESERVED_DATABASES or grant.database == "*":
        raise InvalidName("grants", grant.database, "what is in it is the server's own; name another database")
    if grant.schema is not None or grant.future or grant.kind in (ObjectKind.SCHEMA, ObjectKind.SEQUENCE):
        raise NotSupported("grants", "MySQL has neither schemas nor sequences, and grants on what is there only")


def _check_name(field: str, value: str, longest: int) -> None:
    check_text(field, value)
    _check_characters(field, value, longest)


def _check_characters(field: str, value: str, longest: int) -> None:
    if len(value) > longest:
        raise InvalidName(
            field, value, f"it is {len(value)} characters long and MySQL takes {longest}; choose a shorter one"
        )
    for character in value:
        if ord(character) > 0xFFFF:
            raise InvalidName(
                field,
                value,
                f"MySQL has no room for U+{ord(character):04X} in names (emoji and rare scripts); leave it out",
            )
    if value.endswith(" "):
        raise InvalidName(field, value, "MySQL drops spaces at the end; leave them out")


def _check_database(database: str) -> None:
    if database.lower() in RESERVED_DATABASES:
        raise InvalidName("databaseName", database, "MySQL keeps this database for itself; choose another name")
    if database.lower().startswith(RAW_FILE_NAME_PREFIX):
        raise InvalidName(
            "databaseName", database, f'MySQL reads "{RAW_FILE_NAME_PREFIX}" as a file name; choose another name'
        )
    # The server makes a directory of the name, and writes what is not a plain letter as "@" and four digits.
    file_name = sum(
        1 if character.isascii() and (character.isalnum() or character == "_") else 5 for character in database
    )
    if file_name > LONGEST_FILE_NAME:
        raise InvalidName(
            "databaseName",
            database,
            "it has more special characters than fit into the name of a directory; choose a shorter one",
        )
