"""Grants to a rotation role that the operator cannot revoke.

The operator cannot act as their grantor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from steersman_databases.engines.sql.inspection import (
    DatabaseContents,
    DatabaseState,
    HeldPrivilege,
    Inspection,
    UngrantablePrivilege,
)

from .grants import GRANT_DIALECT


def foreign_grants_of(inspection: Inspection, name: str, databases: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return databases where a role has only foreign grants, with descriptions.

    The operator cannot revoke these.
    """
    foreign: dict[str, tuple[str, ...]] = {}
    for database in sorted(databases):
        state, contents = (
            inspection.databases.get(database, DatabaseState(database)),
            inspection.contents.get(database, DatabaseContents()),
        )
        found: frozenset[HeldPrivilege | UngrantablePrivilege] = (
            state.privileges | contents.privileges | contents.other_privileges
        )
        # Any role that can act as this one may revoke default privileges.
        default_privileges = {one for one in contents.privileges if one.target.creator is not None}
        held = [one for one in found if one.grantee == name]
        if (
            held
            and default_privileges.isdisjoint(held)
            and all(
                GRANT_DIALECT.grantor_role(inspection, database, one.grantor) in inspection.unassumable_roles
                for one in held
            )
        ):
            foreign[database] = tuple(
                sorted(
                    f"{one.privilege} on {one.target} is kept by {name}, because {one.grantor} granted it: revoke it"
                    for one in held
                )
            )
    return foreign


def describe(foreign: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the descriptions of all databases."""
    return tuple(sorted(descriptions for privileges in foreign.values() for descriptions in privileges))
