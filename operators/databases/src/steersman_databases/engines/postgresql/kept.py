"""What the second login of a user keeps, as a stranger granted it: nobody takes it away who may not act as he."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..survey import DatabaseState, Inside, OtherPrivilege, Privilege, Survey
from .grants import GRANTING


def of_strangers(survey: Survey, name: str, databases: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Those of some databases where a role has only what is not the operator's to take from it, and in words what."""
    kept: dict[str, tuple[str, ...]] = {}
    for database in sorted(databases):
        state, inside = survey.databases.get(database, DatabaseState(database)), survey.inside.get(database, Inside())
        found: frozenset[Privilege | OtherPrivilege] = state.privileges | inside.privileges | inside.others
        # What was granted in advance is anybody's to take who may act as the role.
        ahead = {one for one in inside.privileges if one.on.creator is not None}
        held = [one for one in found if one.grantee == name]
        if (
            held
            and ahead.isdisjoint(held)
            and all(GRANTING.acting(survey, database, one.grantor) in survey.strangers for one in held)
        ):
            kept[database] = tuple(
                sorted(
                    f"{one.privilege} on {one.on} stays with {name}, to whom {one.grantor} granted it: revoke it"
                    for one in held
                )
            )
    return kept


def told(kept: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """All of it in words."""
    return tuple(sorted(words for those in kept.values() for words in those))
