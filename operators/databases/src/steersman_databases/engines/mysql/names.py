"""Which names MySQL and MariaDB take."""

from __future__ import annotations

from ..desired import ALL, EACH, EMPTY_TEMPLATE, DesiredDatabase, DesiredGrant, DesiredUser, ObjectKind
from ..errors import InvalidName, NotSupported
from ..names import check_grant, check_not_administrator, check_password, check_text
from ..survey import Survey
from .grants import HARMLESS

LONGEST = 64
LONGEST_USER = 32
"""Characters, of whatever there is and of users. MariaDB takes longer users; names that only one of the two takes are
no good."""

LONGEST_FILE_NAME = 255

RESERVED_DATABASES = frozenset({"mysql", "sys", "information_schema", "performance_schema", "ndbinfo", "steersman"})
RESERVED_USERS = frozenset({"root", "event_scheduler", "system user", "unauthenticated user", "delayed"})
RESERVED_ROLES = frozenset({"none", "public", "current_role", "current_user"})
RESERVED_USER_PREFIXES = ("mysql.", "mariadb.", "steersman_")
RAW_FILE_NAME_PREFIX = "#mysql50#"


def check_database(desired: DesiredDatabase) -> None:
    """Refuse what MySQL cannot take as a database, or keeps for itself, and what it does not have.

    Source: MySQL Reference Manual, 11.2 "Schema Object Names", 11.2.4 "Mapping of Identifiers to File Names".

    Raises `InvalidName`, `NotSupported`.
    """
    _check_name("databaseName", desired.name, LONGEST)
    _check_database(desired.name)
    _check_name("owner", desired.owner, LONGEST_USER)
    for field, words in (("encoding", desired.encoding), ("collation", desired.collation)):
        if words is not None:
            check_name(field, words)
    for field, given in (
        ("characterType", desired.character_type is not None),
        ("template", desired.template not in ("", EMPTY_TEMPLATE)),
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
    _check_account("username", desired.name, administrator)
    for password in (desired.password, desired.second.password if desired.second else None):
        if isinstance(password, str):
            check_password(password)
    for field, given, reason in (
        ("createDatabase", desired.create_database, "who may make databases on MySQL may change all of them"),
        ("bypassRowLevelSecurity", desired.bypass_row_level_security, "MySQL has no row-level security"),
        ("connectionLimit", desired.connection_limit == 0, "0 is no limit to MySQL; set login to false instead"),
    ):
        if given:
            raise NotSupported(field, reason)
    for membership in desired.roles:
        _check_account("roles", membership.role, administrator)
        if membership.set_role is False:
            raise NotSupported("roles", "who has a role of MySQL may always set it; leave set out")
    for grant in desired.grants:
        _check_grant(grant)


def check_letters(desired: DesiredDatabase | DesiredUser, survey: Survey) -> None:
    """Refuse capitals where the server makes small letters of them: what is made would not be found again by its
    name, and could be somebody else's by the other.

    Raises `InvalidName`.
    """
    if isinstance(desired, DesiredDatabase):
        named = [("databaseName", desired.name)]
    else:
        grants = [grant for grant in desired.grants if grant.kind is not ObjectKind.SERVER]
        named = [("grants", grant.database) for grant in grants]
        named += [("grants", name) for grant in grants if grant.kind is ObjectKind.TABLE for name in grant.names]
    for field, name in named:
        if survey.lowers and name != name.lower():
            raise InvalidName(field, name, f"this server keeps names in lower case: write {name.lower()}")


def _check_account(field: str, name: str, administrator: str) -> None:
    _check_name(field, name, LONGEST_USER)
    lowered = name.lower()
    if lowered in RESERVED_USERS or lowered.startswith(RESERVED_USER_PREFIXES):
        raise InvalidName(field, name, "MySQL keeps this user for itself; choose another username")
    if lowered in RESERVED_ROLES:
        raise InvalidName(field, name, "MariaDB reads it as a keyword in a role's place; choose another name")
    check_not_administrator(name, administrator)


def _check_grant(grant: DesiredGrant) -> None:
    check_grant(grant)
    for name in (grant.database, *grant.names, *grant.columns):
        check_name("grants", name)
    if grant.kind is ObjectKind.SERVER:
        if beyond := grant.privileges - HARMLESS - {ALL}:
            raise NotSupported("grants", f"{' and '.join(sorted(beyond))} is not given away on the whole server")
        if grant.with_grant_option:
            raise NotSupported("grants", "what is granted on the whole server cannot be passed on")
        return
    if grant.database.lower() in RESERVED_DATABASES or grant.database == EACH:
        raise InvalidName("grants", grant.database, "what is in it is the server's own; name another database")
    if grant.schema is not None or grant.future or grant.kind in (ObjectKind.SCHEMA, ObjectKind.SEQUENCE):
        raise NotSupported("grants", "MySQL has neither schemas nor sequences, and grants on what is there only")


def check_name(field: str, value: str) -> None:
    """Refuse what can be the name of nothing on MySQL. Raises `InvalidName`."""
    _check_name(field, value, LONGEST)


def _check_name(field: str, value: str, longest: int) -> None:
    check_text(field, value)
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
