"""Which names PostgreSQL takes."""

from __future__ import annotations

from ..errors import InvalidName
from ..names import check_not_administrator, check_text

LONGEST = 63
"""Bytes of UTF-8 in an identifier. The server cuts longer ones off silently, and so would mix up two names."""

RESERVED_DATABASES = frozenset({"postgres", "template0", "template1"})
RESERVED_USERS = frozenset({"postgres", "public", "none"})


def check_names(database: str, username: str, administrator: str) -> None:
    """Refuse what PostgreSQL cannot take as names, or keeps for itself.

    Source: PostgreSQL documentation, 4.1.1 "Identifiers and Key Words", 22.3 "Template Databases", and
    CREATE ROLE. Names are compared exactly: quoted identifiers keep their case.

    Raises `InvalidName`.
    """
    check_text("databaseName", database)
    check_text("username", username)
    _check_length("databaseName", database)
    _check_length("username", username)
    if database in RESERVED_DATABASES:
        raise InvalidName("databaseName", database, "PostgreSQL keeps this database for itself; choose another name")
    if username in RESERVED_USERS:
        raise InvalidName("username", username, "PostgreSQL keeps this role for itself; choose another username")
    if username.startswith("pg_"):
        raise InvalidName(
            "username", username, 'PostgreSQL keeps roles that begin with "pg_" for itself; choose another username'
        )
    check_not_administrator(username, administrator)


def _check_length(field: str, value: str) -> None:
    length = len(value.encode())
    if length > LONGEST:
        raise InvalidName(
            field, value, f"it is {length} bytes long and PostgreSQL takes {LONGEST}; choose a shorter one"
        )
