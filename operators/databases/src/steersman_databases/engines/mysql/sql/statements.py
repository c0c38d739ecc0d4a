"""SQL statements of each action on MySQL and MariaDB.

Names are quoted with backticks, within which only the backtick is special. Verifiers are hexadecimal literals,
and keywords are constants of this module. In GRANT, `_` and `%` match any character, so they are escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatch

from steersman_databases.engines.errors import NotSupported
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import SecuredObject
from steersman_databases.engines.sql.sql_actions import (
    AlterDatabase,
    AlterRole,
    CreateDatabase,
    CreateRole,
    DiscardOldPassword,
    DropDatabase,
    DropRole,
    GrantPrivileges,
    GrantRole,
    RevokeOrphaned,
    RevokePrivileges,
    RevokeRole,
    RoleAttributes,
    SetActiveRoles,
    SetVerifier,
    SqlAction,
)

from . import verifiers
from .session import ANY_HOST, grant_pattern, identifier, quoted_account


@dataclass(slots=True)
class StatementDialect:
    """Properties of the server that statements depend on.

    Attributes:
        literal: GRANT takes names of databases literally, and not as patterns.
        roles: roles of MariaDB that have no account of the same name. MySQL has none.
    """

    mariadb: bool
    literal: bool = False
    roles: set[str] = field(default_factory=set[str])

    def grantee(self, name: str) -> str:
        """Return the quoted user or role of a statement."""
        return identifier(name) if name in self.roles else quoted_account(name)


@singledispatch
def statement(action: SqlAction, dialect: StatementDialect) -> tuple[str, str]:
    """Return a description of an action for errors, and its statement."""
    raise NotSupported("this", f"MySQL has no {type(action).__name__}")


def _identified_by(verifier: str | None, second_verifier: str | None = None) -> str:
    if verifier is None:
        return "ACCOUNT LOCK"
    plugin, _, hash_text = verifier.partition(":")
    if plugin == verifiers.NATIVE:
        methods = [_native(each.partition(":")[2]) for each in (verifier, second_verifier) if each is not None]
        return "IDENTIFIED VIA " + " OR ".join(f"{verifiers.NATIVE} USING '{method}'" for method in methods)
    return f"IDENTIFIED WITH {verifiers.SHA2} AS 0x{hash_text.encode('latin-1').hex()}"


def _native(hash_text: str) -> str:
    if len(hash_text) != 41 or hash_text[0] != "*" or not hash_text[1:].isalnum():
        raise ValueError("not a verifier")
    return hash_text


def _limits(attributes: RoleAttributes) -> str:
    limits: dict[str, int] = {}
    if attributes.connection_limit is not None:
        limits["MAX_USER_CONNECTIONS"] = max(attributes.connection_limit, 0)
    if attributes.limits is not None:
        limits["MAX_QUERIES_PER_HOUR"] = attributes.limits.queries
        limits["MAX_UPDATES_PER_HOUR"] = attributes.limits.updates
        limits["MAX_CONNECTIONS_PER_HOUR"] = attributes.limits.connections
    return " WITH " + " ".join(f"{word} {number:d}" for word, number in limits.items()) if limits else ""


@statement.register
def _(action: CreateRole, dialect: StatementDialect) -> tuple[str, str]:
    if dialect.mariadb and action.attributes.login is False:
        dialect.roles.add(action.name)
        return f"creating role {action.name}", f"CREATE ROLE IF NOT EXISTS {identifier(action.name)}"
    text = f"CREATE USER IF NOT EXISTS {quoted_account(action.name)}"
    if action.verifier is not None:
        text += f" {_identified_by(action.verifier)}"
    text += f"{_limits(action.attributes)} PASSWORD EXPIRE NEVER"
    if action.attributes.locked or action.verifier is None:
        text += " ACCOUNT LOCK"
    return f"creating user {action.name}", text


@statement.register
def _(action: AlterRole, dialect: StatementDialect) -> tuple[str, str]:
    asked = " REQUIRE NONE" if action.attributes.certificate is False else ""
    text = f"ALTER USER {quoted_account(action.name)}{asked}{_limits(action.attributes)}"
    if action.attributes.locked is not None:
        text += " ACCOUNT LOCK" if action.attributes.locked else " ACCOUNT UNLOCK"
    return f"altering user {action.name}", text


@statement.register
def _(action: SetVerifier, dialect: StatementDialect) -> tuple[str, str]:
    opens = _identified_by(action.verifier, action.second_verifier) + (
        " RETAIN CURRENT PASSWORD" if action.retain_current else ""
    )
    text = f"ALTER USER {quoted_account(action.name)} {opens} PASSWORD EXPIRE NEVER"
    return f"setting the password of user {action.name}", text


@statement.register
def _(action: DiscardOldPassword, dialect: StatementDialect) -> tuple[str, str]:
    text = f"ALTER USER {quoted_account(action.name)} DISCARD OLD PASSWORD"
    return f"discarding the previous password of user {action.name}", text


@statement.register
def _(action: GrantRole, dialect: StatementDialect) -> tuple[str, str]:
    given = action.membership
    text = f"GRANT {_quoted_role(given.role, dialect)} TO {dialect.grantee(action.member)}"
    text += " WITH ADMIN OPTION" if given.admin else ""
    return f"granting membership in {given.role} to {action.member}", text


@statement.register
def _(action: RevokeRole, dialect: StatementDialect) -> tuple[str, str]:
    role = _quoted_role(action.role, dialect, action.grantor or ANY_HOST)
    text = f"REVOKE {role} FROM {dialect.grantee(action.member)}"
    return f"revoking membership in {action.role} from {action.member}", text


@statement.register
def _(action: SetActiveRoles, dialect: StatementDialect) -> tuple[str, str]:
    roles = ", ".join(_quoted_role(role, dialect) for role in action.roles) or "NONE"
    text = f"SET DEFAULT ROLE {roles} {'FOR' if dialect.mariadb else 'TO'} {quoted_account(action.name)}"
    return f"activating roles of {action.name}", text


def _quoted_role(name: str, dialect: StatementDialect, host: str = ANY_HOST) -> str:
    return identifier(name) if dialect.mariadb else quoted_account(name, host)


@statement.register
def _(action: CreateDatabase, dialect: StatementDialect) -> tuple[str, str]:
    text = f"CREATE DATABASE {identifier(action.name)} CHARACTER SET {_validated_word(action.encoding)}"
    if action.collation is not None:
        text += f" COLLATE {_validated_word(action.collation)}"
    return f"creating database {action.name}", text


@statement.register
def _(action: AlterDatabase, dialect: StatementDialect) -> tuple[str, str]:
    text = f"ALTER DATABASE {identifier(action.name)}"
    if action.encoding is not None:
        text += f" CHARACTER SET {_validated_word(action.encoding)}"
    if action.collation is not None:
        text += f" COLLATE {_validated_word(action.collation)}"
    return f"altering database {action.name}", text


@statement.register
def _(action: DropRole, dialect: StatementDialect) -> tuple[str, str]:
    if action.is_role:
        return f"dropping role {action.name}", f"DROP ROLE IF EXISTS {identifier(action.name)}"
    return f"dropping user {action.name}", f"DROP USER IF EXISTS {quoted_account(action.name)}"


@statement.register
def _(action: DropDatabase, dialect: StatementDialect) -> tuple[str, str]:
    return f"dropping database {action.name}", f"DROP DATABASE IF EXISTS {identifier(action.name)}"


@statement.register
def _(action: GrantPrivileges, dialect: StatementDialect) -> tuple[str, str]:
    on = _level(action.target, dialect)
    text = f"GRANT {_privileges(action.privileges, action.target)} ON {on} TO {dialect.grantee(action.grantee)}"
    return f"granting {', '.join(action.privileges)} on {action.target} to {action.grantee}", text


@statement.register
def _(action: RevokePrivileges, dialect: StatementDialect) -> tuple[str, str]:
    on = _level(action.target, dialect)
    text = f"REVOKE {_privileges(action.privileges, action.target)} ON {on} FROM {dialect.grantee(action.grantee)}"
    return f"revoking {', '.join(action.privileges)} on {action.target} from {action.grantee}", text


@statement.register
def _(action: RevokeOrphaned, dialect: StatementDialect) -> tuple[str, str]:
    meant = replace(dialect, roles={action.grantee}) if action.is_role else dialect
    _, text = statement(RevokePrivileges(action.grantee, action.target, action.privileges, ""), meant)
    on = f"{action.target}" if action.database_exists else f"{action.target}, a previous object of this name,"
    return f"revoking {', '.join(action.privileges)} on {on} from {action.grantee or 'all users'}", text


def _privileges(names: tuple[str, ...], target: SecuredObject) -> str:
    for name in names:
        # The operator defines which privileges are granted. Those to revoke come from the server, and newer versions
        # have more.
        if not (name.isascii() and name.replace(" ", "").replace("_", "").isalpha()):
            raise NotSupported("grants", f"{name} is not a privilege of MySQL")
    part = f" ({identifier(target.column)})" if target.column is not None else ""
    return ", ".join(f"{name}{part}" for name in names)


_ROUTINES = ("FUNCTION", "PROCEDURE", "PACKAGE", "PACKAGE BODY")
"""Packages exist on MariaDB only."""


def _level(target: SecuredObject, dialect: StatementDialect) -> str:
    if target.kind is SecurableKind.SERVER:
        return "*.*"
    if target.kind is SecurableKind.TABLE:
        return f"{identifier(target.database)}.{identifier(target.name or '')}"
    if target.kind is SecurableKind.FUNCTION:
        kind = target.arguments if target.arguments in _ROUTINES else "FUNCTION"
        return f"{kind} {identifier(target.database)}.{identifier(target.name or '')}"
    if target.name is not None or dialect.literal:
        return f"{identifier(target.name or target.database)}.*"
    return identifier(grant_pattern(target.database)) + ".*"


def _validated_word(name: str) -> str:
    """Return a character set or collation.

    These are words that cannot be quoted.
    """
    if not name.isascii() or not name.replace("_", "").isalnum():
        raise NotSupported("encoding", f'"{name}" is not a character set or collation of MySQL')
    return name
