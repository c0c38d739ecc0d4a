"""What each action is in the SQL of MySQL and MariaDB.

Names are quoted by backticks, within which the backtick alone is special; verifiers are hexadecimal literals;
keywords come from here. In GRANT, `_` and `%` stand for any character, so they are escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import singledispatch

from ..actions import (
    Action,
    AlterDatabase,
    AlterUser,
    Attributes,
    CreateDatabase,
    CreateUser,
    DiscardSecond,
    DropDatabase,
    DropUser,
    Grant,
    GrantRole,
    Revoke,
    RevokeLeft,
    RevokeRole,
    SetDefaultRoles,
    SetVerifier,
)
from ..desired import ObjectKind
from ..errors import NotSupported
from ..survey import SecuredObject
from . import verifiers
from .session import ANYWHERE, account, identifier, pattern


@dataclass(slots=True)
class Dialect:
    """What a statement depends on, beside its action.

    `literal`: GRANT takes names of databases as they are, rather than as patterns. `roles` are those of MariaDB,
    where they are no accounts, whose names are no user's; MySQL has none.
    """

    mariadb: bool
    literal: bool = False
    roles: set[str] = field(default_factory=set[str])

    def grantee(self, name: str) -> str:
        """Whom a statement is about, quoted."""
        return identifier(name) if name in self.roles else account(name)


@singledispatch
def statement(action: Action, dialect: Dialect) -> tuple[str, str]:
    """What an action does, in words for errors, and its statement."""
    raise NotSupported("this", f"MySQL has no {type(action).__name__}")


def _identified(verifier: str | None, beside: str | None = None) -> str:
    if verifier is None:
        return "ACCOUNT LOCK"
    plugin, _, kept = verifier.partition(":")
    if plugin == verifiers.NATIVE:
        ways = [_native(each.partition(":")[2]) for each in (verifier, beside) if each is not None]
        return "IDENTIFIED VIA " + " OR ".join(f"{verifiers.NATIVE} USING '{way}'" for way in ways)
    return f"IDENTIFIED WITH {verifiers.SHA2} AS 0x{kept.encode('latin-1').hex()}"


def _native(kept: str) -> str:
    if len(kept) != 41 or kept[0] != "*" or not kept[1:].isalnum():
        raise ValueError("not a verifier")
    return kept


def _limits(attributes: Attributes) -> str:
    limits: dict[str, int] = {}
    if attributes.connection_limit is not None:
        limits["MAX_USER_CONNECTIONS"] = max(attributes.connection_limit, 0)
    if attributes.limits is not None:
        limits["MAX_QUERIES_PER_HOUR"] = attributes.limits.queries
        limits["MAX_UPDATES_PER_HOUR"] = attributes.limits.updates
        limits["MAX_CONNECTIONS_PER_HOUR"] = attributes.limits.connections
    return " WITH " + " ".join(f"{word} {number:d}" for word, number in limits.items()) if limits else ""


@statement.register
def _(action: CreateUser, dialect: Dialect) -> tuple[str, str]:
    if dialect.mariadb and action.attributes.login is False:
        dialect.roles.add(action.name)
        return f"creating role {action.name}", f"CREATE ROLE IF NOT EXISTS {identifier(action.name)}"
    text = f"CREATE USER IF NOT EXISTS {account(action.name)}"
    if action.verifier is not None:
        text += f" {_identified(action.verifier)}"
    text += f"{_limits(action.attributes)} PASSWORD EXPIRE NEVER"
    if action.attributes.locked or action.verifier is None:
        text += " ACCOUNT LOCK"
    return f"creating user {action.name}", text


@statement.register
def _(action: AlterUser, dialect: Dialect) -> tuple[str, str]:
    asked = " REQUIRE NONE" if action.attributes.certificate is False else ""
    text = f"ALTER USER {account(action.name)}{asked}{_limits(action.attributes)}"
    if action.attributes.locked is not None:
        text += " ACCOUNT LOCK" if action.attributes.locked else " ACCOUNT UNLOCK"
    return f"altering user {action.name}", text


@statement.register
def _(action: SetVerifier, dialect: Dialect) -> tuple[str, str]:
    opens = _identified(action.verifier, action.beside) + (" RETAIN CURRENT PASSWORD" if action.retain else "")
    text = f"ALTER USER {account(action.name)} {opens} PASSWORD EXPIRE NEVER"
    return f"setting the password of user {action.name}", text


@statement.register
def _(action: DiscardSecond, dialect: Dialect) -> tuple[str, str]:
    text = f"ALTER USER {account(action.name)} DISCARD OLD PASSWORD"
    return f"discarding the former password of user {action.name}", text


@statement.register
def _(action: GrantRole, dialect: Dialect) -> tuple[str, str]:
    given = action.membership
    text = f"GRANT {_role(given.role, dialect)} TO {dialect.grantee(action.member)}"
    text += " WITH ADMIN OPTION" if given.admin else ""
    return f"making {action.member} a member of {given.role}", text


@statement.register
def _(action: RevokeRole, dialect: Dialect) -> tuple[str, str]:
    role = _role(action.role, dialect, action.grantor or ANYWHERE)
    text = f"REVOKE {role} FROM {dialect.grantee(action.member)}"
    return f"revoking membership in {action.role} from {action.member}", text


@statement.register
def _(action: SetDefaultRoles, dialect: Dialect) -> tuple[str, str]:
    roles = ", ".join(_role(role, dialect) for role in action.roles) or "NONE"
    text = f"SET DEFAULT ROLE {roles} {'FOR' if dialect.mariadb else 'TO'} {account(action.name)}"
    return f"activating roles of {action.name}", text


def _role(name: str, dialect: Dialect, host: str = ANYWHERE) -> str:
    return identifier(name) if dialect.mariadb else account(name, host)


@statement.register
def _(action: CreateDatabase, dialect: Dialect) -> tuple[str, str]:
    text = f"CREATE DATABASE {identifier(action.name)} CHARACTER SET {_word(action.encoding)}"
    if action.collation is not None:
        text += f" COLLATE {_word(action.collation)}"
    return f"creating database {action.name}", text


@statement.register
def _(action: AlterDatabase, dialect: Dialect) -> tuple[str, str]:
    text = f"ALTER DATABASE {identifier(action.name)}"
    if action.encoding is not None:
        text += f" CHARACTER SET {_word(action.encoding)}"
    if action.collation is not None:
        text += f" COLLATE {_word(action.collation)}"
    return f"altering database {action.name}", text


@statement.register
def _(action: DropUser, dialect: Dialect) -> tuple[str, str]:
    if action.role:
        return f"dropping role {action.name}", f"DROP ROLE IF EXISTS {identifier(action.name)}"
    return f"dropping user {action.name}", f"DROP USER IF EXISTS {account(action.name)}"


@statement.register
def _(action: DropDatabase, dialect: Dialect) -> tuple[str, str]:
    return f"dropping database {action.name}", f"DROP DATABASE IF EXISTS {identifier(action.name)}"


@statement.register
def _(action: Grant, dialect: Dialect) -> tuple[str, str]:
    on = _level(action.on, dialect)
    text = f"GRANT {_privileges(action.privileges, action.on)} ON {on} TO {dialect.grantee(action.grantee)}"
    return f"granting {', '.join(action.privileges)} on {action.on} to {action.grantee}", text


@statement.register
def _(action: Revoke, dialect: Dialect) -> tuple[str, str]:
    on = _level(action.on, dialect)
    text = f"REVOKE {_privileges(action.privileges, action.on)} ON {on} FROM {dialect.grantee(action.grantee)}"
    return f"revoking {', '.join(action.privileges)} on {action.on} from {action.grantee}", text


@statement.register
def _(action: RevokeLeft, dialect: Dialect) -> tuple[str, str]:
    meant = replace(dialect, roles={action.grantee}) if action.role else dialect
    _, text = statement(Revoke(action.grantee, action.on, action.privileges, ""), meant)
    on = f"{action.on}" if action.there else f"{action.on}, a former one of this name,"
    return f"revoking {', '.join(action.privileges)} on {on} from {action.grantee or 'everybody'}", text


def _privileges(names: tuple[str, ...], on: SecuredObject) -> str:
    for name in names:
        # What is granted the vocabulary says; what is revoked the server, each version of which has more.
        if not (name.isascii() and name.replace(" ", "").replace("_", "").isalpha()):
            raise NotSupported("grants", f"{name} is no privilege of MySQL")
    part = f" ({identifier(on.column)})" if on.column is not None else ""
    return ", ".join(f"{name}{part}" for name in names)


_ROUTINES = ("FUNCTION", "PROCEDURE", "PACKAGE", "PACKAGE BODY")
"""Packages are MariaDB's."""


def _level(on: SecuredObject, dialect: Dialect) -> str:
    if on.kind is ObjectKind.SERVER:
        return "*.*"
    if on.kind is ObjectKind.TABLE:
        return f"{identifier(on.database)}.{identifier(on.name or '')}"
    if on.kind is ObjectKind.FUNCTION:
        kind = on.arguments if on.arguments in _ROUTINES else "FUNCTION"
        return f"{kind} {identifier(on.database)}.{identifier(on.name or '')}"
    if on.name is not None or dialect.literal:
        return f"{identifier(on.name or on.database)}.*"
    return identifier(pattern(on.database)) + ".*"


def _word(name: str) -> str:
    """Character sets and collations are words, not names that could be quoted."""
    if not name.isascii() or not name.replace("_", "").isalnum():
        raise NotSupported("encoding", f'"{name}" is no character set or collation of MySQL')
    return name
