"""Grantable privileges on PostgreSQL, and their grantors.

GRANT runs as the owner of the object, so that the owner is the grantor. The operator needs no rights on the
object, and its grants do not end with its role. Sources: PostgreSQL documentation, 5.7 "Privileges", and GRANT.
"""

from __future__ import annotations

from collections.abc import Mapping

from steersman_databases.engines.sql.desired import DesiredUser, SecurableKind
from steersman_databases.engines.sql.grant_planner import GrantDialect, normalize_signature
from steersman_databases.engines.sql.inspection import HeldPrivilege, Inspection, SecuredObject

from ..sql.database_inspection import DATABASE_OWNER

PRIVILEGES: Mapping[SecurableKind, frozenset[str]] = {
    SecurableKind.DATABASE: frozenset({"CONNECT", "CREATE", "TEMPORARY"}),
    SecurableKind.SCHEMA: frozenset({"CREATE", "USAGE"}),
    SecurableKind.TABLE: frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"}),
    SecurableKind.SEQUENCE: frozenset({"SELECT", "UPDATE", "USAGE"}),
    SecurableKind.FUNCTION: frozenset({"EXECUTE"}),
}
"""Privileges of all supported versions."""

MAINTAIN_SINCE_VERSION = 17


def privileges_of(inspection: Inspection) -> Mapping[SecurableKind, frozenset[str]]:
    """Return the privileges of this server by the kind of object."""
    if inspection.version[0] < MAINTAIN_SINCE_VERSION:
        return PRIVILEGES
    return {**PRIVILEGES, SecurableKind.TABLE: PRIVILEGES[SecurableKind.TABLE] | {"MAINTAIN"}}


def _grantor_role(inspection: Inspection, database: str, owner: str) -> str:
    """Return the role that can act as the owner.

    No role can act as the predefined owner of `public`, but its one member counts as the owner.
    """
    state = inspection.databases.get(database)
    return state.owner if owner == DATABASE_OWNER and state is not None else owner


def _is_implicit(_: Inspection, __: DesiredUser, ___: HeldPrivilege) -> bool:
    # The inspection leaves out privileges of owners.
    return False


def _spell(target: SecuredObject) -> str:
    """Return a function with its types, and other objects by name."""
    return (
        target.name or "" if target.arguments is None else normalize_signature(f"{target.name}({target.arguments})")
    )


GRANT_DIALECT = GrantDialect(privileges_of, _grantor_role, _is_implicit, _spell)
