"""Rules for names that all engines share. Each engine adds its own."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..errors import InvalidName
from .desired import DesiredGrant
from .inspection import InspectionScope


def check_text(field: str, value: str) -> None:
    """Reject empty names, control characters and lone surrogates.

    Raises:
        InvalidName: no engine can store the name.
    """
    if not value:
        raise InvalidName(field, value, "it is empty: set a name")
    for character in value:
        category = unicodedata.category(character)
        if category == "Cc":
            raise InvalidName(field, value, f"it contains the control character U+{ord(character):04X}: remove it")
        if category == "Cs":
            raise InvalidName(field, ascii(value), f"U+{ord(character):04X} is a lone surrogate: remove it")


def check_grant(grant: DesiredGrant) -> None:
    """Reject names in a grant that no object can have.

    Raises:
        InvalidName: a name is invalid.
    """
    schema = () if grant.schema is None else (grant.schema,)
    for name in (grant.database, *schema, *grant.names, *grant.columns, *grant.created_by):
        check_text("grants", name)


def check_not_administrator(username: str, administrator: str) -> None:
    """Reject the administrator's name for an application user.

    Raises:
        InvalidName: the names are equal.
    """
    if username == administrator:
        raise InvalidName("username", username, "it is the administrator of this server: choose another username")


def check_password(password: str, max_bytes: int) -> None:
    """Reject passwords that are too long, or that servers ignore silently.

    Args:
        max_bytes: longest password that the engine supports.

    Raises:
        InvalidName: the message does not contain the password.
    """
    if not password:
        raise InvalidName("password", "", "it is empty: set it in the Secret")
    if len(password.encode(errors="surrogatepass")) > max_bytes:
        raise InvalidName("password", "", f"it is longer than {max_bytes} bytes: set a shorter one in the Secret")
    if "\0" in password:
        raise InvalidName("password", "", "it contains a NUL character: remove it")
    if any(unicodedata.category(character) == "Cs" for character in password):
        raise InvalidName("password", "", "it contains a lone surrogate: remove it")


def without_invalid(scope: InspectionScope, check: Callable[[str, str], None]) -> InspectionScope:
    """Scope without names that cannot exist on a server.

    Args:
        scope: scope of an inspection.
        check: `SqlEngine.check_name` of the engine.
    """

    def is_valid(name: str) -> bool:
        try:
            check("", name)
        except InvalidName:
            return False
        return True

    def valid_names(names: Iterable[str]) -> frozenset[str]:
        return frozenset(filter(is_valid, names))

    return replace(
        scope,
        users=valid_names(scope.users),
        databases=valid_names(scope.databases),
        without_contents=valid_names(scope.without_contents),
        dropped_databases=valid_names(scope.dropped_databases),
    )
