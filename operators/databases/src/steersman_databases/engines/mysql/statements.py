"""What each action is in the SQL of MySQL and MariaDB.

Names are quoted by backticks, within which the backtick alone is special; verifiers are hexadecimal literals;
keywords come from here. In GRANT, `_` and `%` stand for any character, so they are escaped.
"""

from __future__ import annotations

from functools import singledispatch

from ..actions import (
    Action,
    AlterUser,
    Attributes,
    CreateDatabase,
    CreateUser,
    DiscardSecond,
    DropDatabase,
    DropUser,
    Grant,
    Revoke,
    SetVerifier,
)
from ..desired import ObjectKind
from ..errors import NotSupported
from ..survey import SecuredObject
from . import verifiers
from .grants import EVERYWHERE, HISTORY, ON_DATABASES
from .session import account, identifier


@singledispatch
def statement(action: Action, literal: bool) -> tuple[str, str]:
    """What an action does, in words for errors, and its statement.

    `literal`: GRANT takes names of databases as they are, rather than as patterns.
    """
    raise NotSupported("this", f"MySQL has no {type(action).__name__}")


def _identified(verifier: str | None) -> str:
    if verifier is None:
        return "ACCOUNT LOCK"
    plugin, _, kept = verifier.partition(":")
    if plugin == verifiers.NATIVE:
        return f"IDENTIFIED VIA {verifiers.NATIVE} USING '{_native(kept)}'"
    return f"IDENTIFIED WITH {verifiers.SHA2} AS 0x{kept.encode('latin-1').hex()}"


def _native(kept: str) -> str:
    if len(kept) != 41 or kept[0] != "*" or not kept[1:].isalnum():
        raise ValueError("not a verifier")
    return kept


def _limit(attributes: Attributes) -> str:
    if attributes.connection_limit is None:
        return ""
    return f" WITH MAX_USER_CONNECTIONS {max(attributes.connection_limit, 0):d}"


@statement.register
def _(action: CreateUser, literal: bool) -> tuple[str, str]:
    text = f"CREATE USER IF NOT EXISTS {account(action.name)}"
    if action.verifier is not None:
        text += f" {_identified(action.verifier)}"
    text += f"{_limit(action.attributes)} PASSWORD EXPIRE NEVER"
    if action.attributes.locked or action.verifier is None:
        text += " ACCOUNT LOCK"
    return f"creating user {action.name}", text


@statement.register
def _(action: AlterUser, literal: bool) -> tuple[str, str]:
    text = f"ALTER USER {account(action.name)}{_limit(action.attributes)}"
    if action.attributes.locked is not None:
        text += " ACCOUNT LOCK" if action.attributes.locked else " ACCOUNT UNLOCK"
    return f"altering user {action.name}", text


@statement.register
def _(action: SetVerifier, literal: bool) -> tuple[str, str]:
    retain = " RETAIN CURRENT PASSWORD" if action.retain else ""
    text = f"ALTER USER {account(action.name)} {_identified(action.verifier)}{retain} PASSWORD EXPIRE NEVER"
    return f"setting the password of user {action.name}", text


@statement.register
def _(action: DiscardSecond, literal: bool) -> tuple[str, str]:
    text = f"ALTER USER {account(action.name)} DISCARD OLD PASSWORD"
    return f"discarding the former password of user {action.name}", text


@statement.register
def _(action: CreateDatabase, literal: bool) -> tuple[str, str]:
    text = f"CREATE DATABASE {identifier(action.name)} CHARACTER SET {_word(action.encoding)}"
    if action.collation is not None:
        text += f" COLLATE {_word(action.collation)}"
    return f"creating database {action.name}", text


@statement.register
def _(action: DropUser, literal: bool) -> tuple[str, str]:
    return f"dropping user {action.name}", f"DROP USER IF EXISTS {account(action.name)}"


@statement.register
def _(action: DropDatabase, literal: bool) -> tuple[str, str]:
    return f"dropping database {action.name}", f"DROP DATABASE IF EXISTS {identifier(action.name)}"


@statement.register
def _(action: Grant, literal: bool) -> tuple[str, str]:
    option = " WITH GRANT OPTION" if action.grantable else ""
    on = _level(action.on, literal)
    text = f"GRANT {_privileges(action.privileges, action.on)} ON {on} TO {account(action.grantee)}{option}"
    return f"granting {', '.join(action.privileges)} on {action.on} to {action.grantee}", text


@statement.register
def _(action: Revoke, literal: bool) -> tuple[str, str]:
    names = "GRANT OPTION" if action.only_option else _privileges(action.privileges, action.on)
    text = f"REVOKE {names} ON {_level(action.on, literal)} FROM {account(action.grantee)}"
    return f"revoking {', '.join(action.privileges)} on {action.on} from {action.grantee}", text


_WORDS = ON_DATABASES | {HISTORY}


def _privileges(names: tuple[str, ...], on: SecuredObject) -> str:
    for name in names:
        # On the whole server there are more, dynamic ones too: only ever read from the server, to be revoked.
        if name not in _WORDS and not (
            on.database == EVERYWHERE and name.replace(" ", "").replace("_", "").isalpha()
        ):
            raise NotSupported("grants", f"{name} is no privilege of MySQL")
    part = f" ({identifier(on.column)})" if on.column is not None else ""
    return ", ".join(f"{name}{part}" for name in names)


def _level(on: SecuredObject, literal: bool) -> str:
    if on.database == EVERYWHERE:
        return "*.*"
    if on.kind is ObjectKind.TABLE:
        return f"{identifier(on.database)}.{identifier(on.name or '')}"
    if on.kind is ObjectKind.FUNCTION:
        kind = "PROCEDURE" if on.arguments == "PROCEDURE" else "FUNCTION"
        return f"{kind} {identifier(on.database)}.{identifier(on.name or '')}"
    if on.name is not None or literal:
        return f"{identifier(on.name or on.database)}.*"
    return identifier("".join("\\" + c if c in "\\_%" else c for c in on.database)) + ".*"


def _word(name: str) -> str:
    """Character sets and collations are words, not names that could be quoted."""
    if not name.isascii() or not name.replace("_", "").isalnum():
        raise NotSupported("encoding", f'"{name}" is no character set or collation of MySQL')
    return name
