"""Which names MySQL and MariaDB take."""

from __future__ import annotations

from ..errors import InvalidName
from ..names import check_not_administrator, check_text

LONGEST_DATABASE = 64
LONGEST_USER = 32
"""Characters. MariaDB takes longer users; names that only one of the two takes are no good."""

LONGEST_FILE_NAME = 255

RESERVED_DATABASES = frozenset({"mysql", "sys", "information_schema", "performance_schema", "ndbinfo"})
RESERVED_USERS = frozenset({"root"})
RESERVED_USER_PREFIXES = ("mysql.", "mariadb.")
RAW_FILE_NAME_PREFIX = "#mysql50#"


def check_names(database: str, username: str, administrator: str) -> None:
    """Refuse what MySQL cannot take as names, or keeps for itself.

    Source: MySQL Reference Manual, 11.2 "Schema Object Names", 11.2.4 "Mapping of Identifiers to File Names",
    8.2.4 "Specifying Account Names", 8.2.9 "Reserved Accounts".

    Raises `InvalidName`.
    """
    for field, value, longest in (
        ("databaseName", database, LONGEST_DATABASE),
        ("username", username, LONGEST_USER),
    ):
        check_text(field, value)
        _check_characters(field, value, longest)
    _check_database(database)
    lowered = username.lower()
    if lowered in RESERVED_USERS or lowered.startswith(RESERVED_USER_PREFIXES):
        raise InvalidName("username", username, "MySQL keeps this user for itself; choose another username")
    check_not_administrator(username, administrator)


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
