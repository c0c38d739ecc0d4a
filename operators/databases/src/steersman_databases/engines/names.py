"""The rules about names that every engine shares. Each engine adds its own."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace

from .desired import DesiredGrant
from .errors import InvalidName
from .survey import Scope


def check_text(field: str, value: str) -> None:
    """Refuse what no engine can store as a name: nothing at all, control characters, half characters.

    Raises `InvalidName`.
    """
    if not value:
        raise InvalidName(field, value, "it is empty; give a name")
    for character in value:
        category = unicodedata.category(character)
        if category == "Cc":
            raise InvalidName(field, value, f"it holds the control character U+{ord(character):04X}; leave it out")
        if category == "Cs":
            raise InvalidName(field, ascii(value), f"U+{ord(character):04X} is half a character; leave it out")


def check_grant(grant: DesiredGrant) -> None:
    """Refuse what cannot be the name of anything that a grant is about. Raises `InvalidName`."""
    schema = () if grant.schema is None else (grant.schema,)
    for name in (grant.database, *schema, *grant.names, *grant.columns, *grant.created_by):
        check_text("grants", name)


def check_not_administrator(username: str, administrator: str) -> None:
    """Refuse to make an application user out of the administrator.

    Raises `InvalidName`.
    """
    if username == administrator:
        raise InvalidName("username", username, "it is this server's administrator; choose another username")


def check_password(password: str) -> None:
    """Refuse passwords that servers drop or cut off silently.

    Raises `InvalidName`, which does not show the password.
    """
    if not password:
        raise InvalidName("password", "", "it is empty; the application's Secret must hold one")
    if "\0" in password:
        raise InvalidName("password", "", "it holds a NUL character; leave it out")
    if any(unicodedata.category(character) == "Cs" for character in password):
        raise InvalidName("password", "", "it holds half a character (a lone surrogate); leave it out")


def possible(scope: Scope, check: Callable[[str, str], None]) -> Scope:
    """A scope without users and databases that can be on no server: nobody made them, and some cannot be looked for.

    Args:
        scope: of a look.
        check: an engine's `Contents.check_name`.
    """

    def can_be(name: str) -> bool:
        try:
            check("", name)
        except InvalidName:
            return False
        return True

    def those(names: Iterable[str]) -> frozenset[str]:
        return frozenset(filter(can_be, names))

    return replace(
        scope,
        users=those(scope.users),
        databases=those(scope.databases),
        unfollowed=those(scope.unfollowed),
        dropped=those(scope.dropped),
    )
