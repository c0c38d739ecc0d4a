"""The plan for a database of MySQL or MariaDB: that it is there, and that its owner may do everything in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..actions import AlterDatabase, CreateDatabase, DropDatabase, Grant, MarkDatabase, RevokeLeft
from ..claims import is_ours, require_ours
from ..desired import Claim, DesiredDatabase, ObjectKind
from ..errors import ImmutableOnServer, OwnerMissing
from ..plan import Change, Plan, Step
from ..survey import DatabaseState, Inside, SecuredObject, Survey
from .grants import EVERYBODY, MARIADBS_PUBLIC, vocabulary

CHARACTER_SET = "utf8mb4"


def plan_database(survey: Survey, desired: DesiredDatabase) -> Plan:
    """See `Contents.plan_database`."""
    steps: list[Step] = []
    state = survey.databases.get(desired.name)
    mark = desired.claim.text if desired.claim is not None else None
    if state is None or not state.exists:
        # The mark first: it counts only where the database is there, and one without would be nobody's.
        if mark is not None:
            steps.append(Step(MarkDatabase(desired.name, mark, desired.owner, ahead=True)))
        steps += _cleared(survey, desired)
        create = CreateDatabase(desired.name, desired.encoding or CHARACTER_SET, desired.collation, None, "")
        steps.append(Step(create, Change("DatabaseCreated", f"created database {desired.name}")))
    else:
        require_ours("database", desired.name, state.mark, desired.claim, desired.adopt)
        steps += _closed(state)
        steps += _letters(state, desired)
        if mark is not None and (state.mark, state.marked_owner) != (mark, desired.owner):
            steps.append(Step(MarkDatabase(desired.name, mark, desired.owner), _taken(state, desired)))
    # Last: for a database that cannot be had no owner is to be made.
    if desired.owner not in survey.users:
        raise OwnerMissing(desired.owner)
    on = SecuredObject(ObjectKind.DATABASE, desired.name)
    # Not by a pattern, which means other databases, too.
    found = [one for one in state.privileges if not one.namesake] if state is not None else []
    held = {one.privilege for one in found if (one.grantee, one.on) == (desired.owner, on)}
    if lacking := vocabulary(survey)[ObjectKind.DATABASE] - held:
        change = Change("GrantsRestored", f"granted ALL on database {desired.name} to {desired.owner}")
        steps.append(Step(Grant(desired.owner, on, tuple(sorted(lacking)), ""), change))
    return Plan(tuple(steps))


def _taken(state: DatabaseState, desired: DesiredDatabase) -> Change | None:
    if desired.claim is not None and state.mark != desired.claim.text:
        return Change("DatabaseAdopted", f"took over database {state.name}")
    if not state.marked_owner:
        # Who it was has been dropped, or was not written down by an earlier version.
        return None
    return Change("DatabaseAltered", f"altered database {state.name} (owner {desired.owner})")


def _letters(state: DatabaseState, desired: DesiredDatabase) -> Iterator[Step]:
    """Character set and collation of tables to come, which the owner can change. Of what is not ours they stay."""
    # Who takes something over may have declared what it has, or left it as it is.
    encoding = desired.encoding or (None if desired.adopt else CHARACTER_SET)
    ours = desired.claim is not None and state.mark == desired.claim.text
    different = [
        (field, found, wanted)
        for field, found, wanted in (
            ("encoding", state.encoding, encoding if ours else desired.encoding),
            ("collation", state.collation, desired.collation),
        )
        if wanted is not None and not _is_same(found, wanted, state.encoding)
    ]
    if different and not ours:
        raise ImmutableOnServer(*different[0])
    if different:
        told = ", ".join(f"{field} {wanted}" for field, _, wanted in different)
        alter = AlterDatabase(state.name, "", encoding=encoding, collation=desired.collation)
        yield Step(alter, Change("DatabaseAltered", f"altered database {state.name} ({told})"), alone=True)


def _is_same(found: str, wanted: str, encoding: str) -> bool:
    """`utf8` is another name of `utf8mb3`, or of what MariaDB is set to; there a collation may lack its set."""
    found, wanted = found.lower(), wanted.lower()
    short, _, rest = wanted.partition("_")
    spelled = (
        {f"{name}_{rest}" if rest else name for name in ("utf8mb3", "utf8mb4")} if short == "utf8" else set[str]()
    )
    return found in {wanted, f"{encoding.lower()}_{wanted}", *spelled}


def _cleared(survey: Survey, desired: DesiredDatabase) -> Iterator[Step]:
    """Grants outlive their database here: who had some on a former one would have them on the new one."""
    state = survey.databases.get(desired.name)
    inside = survey.inside.get(desired.name, Inside())
    left: dict[tuple[str, SecuredObject, bool], list[str]] = defaultdict(list)
    for one in (*(state.privileges if state is not None else ()), *inside.privileges):
        if one.grantee != desired.owner or one.namesake:
            left[one.grantee, one.on, one.namesake].append(one.privilege)
    # Columns first: what is revoked on a table goes from its columns, too.
    for (grantee, on, role), privileges in sorted(
        left.items(), key=lambda item: (item[0][1].column is None, str(item[0]))
    ):
        names = tuple(sorted(privileges))
        told = f"revoked {', '.join(names)} on {on}, a former one of this name, from {grantee or 'everybody'}"
        yield Step(RevokeLeft(grantee, on, names, role), Change("GrantRevoked", told), takes=True)


def _closed(state: DatabaseState) -> Iterator[Step]:
    """A database that is there opens to nobody who was not granted it; what users were granted is theirs."""
    for grantee in EVERYBODY:
        held: dict[SecuredObject, list[str]] = defaultdict(list)
        for one in state.privileges:
            if one.grantee == grantee and one.on.name in (None, state.name):
                held[one.on].append(one.privilege)
        for on, privileges in sorted(held.items(), key=str):
            # On MariaDB a user may be called as the role is.
            role = grantee == MARIADBS_PUBLIC
            revoke = RevokeLeft(grantee, on, tuple(sorted(privileges)), role, there=True)
            change = Change("PublicAccessRevoked", f"closed database {state.name} to other users")
            yield Step(revoke, change, alone=True, takes=True)


def plan_drop_database(survey: Survey, name: str, claim: Claim | None) -> Plan:
    """See `Contents.plan_drop_database`."""
    state = survey.databases.get(name)
    if state is None or not state.exists:
        # The administrator may have lost what it had on it. Of capitals the server could make another's name.
        ours = claim is not None and survey.hidden.get(name) == claim.text
        mistaken = survey.lowers and name != name.lower()
        return Plan((Step(DropDatabase(name)),) if ours and not mistaken else ())
    if not is_ours(state.mark, claim):
        return Plan()
    return Plan((Step(DropDatabase(name), Change("DatabaseDropped", f"dropped database {name}")),))
