"""What may be granted on PostgreSQL, and under whose name.

GRANT runs as the owner of the object, so that the owner is the grantor: the operator itself needs no right on
anything, and what it granted does not end with it. Sources: PostgreSQL documentation, 5.7 "Privileges", and GRANT.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..desired import DesiredUser, ObjectKind
from ..granting import Granting, tidy
from ..survey import Privilege, SecuredObject, Survey
from .survey import DATABASE_OWNER

PRIVILEGES: Mapping[ObjectKind, frozenset[str]] = {
    ObjectKind.DATABASE: frozenset({"CONNECT", "CREATE", "TEMPORARY"}),
    ObjectKind.SCHEMA: frozenset({"CREATE", "USAGE"}),
    ObjectKind.TABLE: frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"}),
    ObjectKind.SEQUENCE: frozenset({"SELECT", "UPDATE", "USAGE"}),
    ObjectKind.FUNCTION: frozenset({"EXECUTE"}),
}
"""What every supported version has."""

MAINTAINING = 17


def vocabulary(survey: Survey) -> Mapping[ObjectKind, frozenset[str]]:
    """The privileges of this server, by the kind of object."""
    if survey.version[0] < MAINTAINING:
        return PRIVILEGES
    return {**PRIVILEGES, ObjectKind.TABLE: PRIVILEGES[ObjectKind.TABLE] | {"MAINTAIN"}}


def _acting(survey: Survey, database: str, owner: str) -> str:
    """Nobody can act as the predefined owner of `public`, but its one member counts as it."""
    state = survey.databases.get(database)
    return state.owner if owner == DATABASE_OWNER and state is not None else owner


def _automatic(_: Survey, __: DesiredUser, ___: Privilege) -> bool:
    # What an owner has by owning is left out of the survey already.
    return False


def _spelled(on: SecuredObject) -> str:
    """A function with its types, all else by its name."""
    return on.name or "" if on.arguments is None else tidy(f"{on.name}({on.arguments})")


GRANTING = Granting(vocabulary, _acting, _automatic, _spelled)
