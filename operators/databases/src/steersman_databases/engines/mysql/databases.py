"""The plan for a database of MySQL or MariaDB: that it is there, and that its owner may do everything in it."""

from __future__ import annotations

from ..actions import CreateDatabase, DropDatabase, Grant, MarkDatabase
from ..claims import is_ours, require_ours
from ..desired import Claim, DesiredDatabase, ObjectKind
from ..errors import ImmutableOnServer, OwnerMissing
from ..plan import Change, Plan, Step
from ..survey import SecuredObject, Survey
from .grants import vocabulary

CHARACTER_SET = "utf8mb4"


def plan_database(survey: Survey, desired: DesiredDatabase) -> Plan:
    """See `Contents.plan_database`."""
    if desired.owner not in survey.users:
        raise OwnerMissing(desired.owner)
    steps: list[Step] = []
    state = survey.databases.get(desired.name)
    mark = desired.claim.text if desired.claim is not None else None
    if state is None or not state.exists:
        # The mark first: it counts only where the database is there, and one without would be nobody's.
        if mark is not None:
            steps.append(Step(MarkDatabase(desired.name, mark, "")))
        create = CreateDatabase(desired.name, desired.encoding or CHARACTER_SET, desired.collation, None, "")
        steps.append(Step(create, Change("DatabaseCreated", f"created database {desired.name}")))
    else:
        require_ours("database", desired.name, state.mark, desired.claim, desired.adopt)
        for field, found, wanted in (
            ("encoding", state.encoding, desired.encoding),
            ("collation", state.collation, desired.collation),
        ):
            if wanted is not None and found.lower() != wanted.lower():
                raise ImmutableOnServer(field, found, wanted)
        if mark is not None and state.mark != mark:
            change = Change("DatabaseAdopted", f"took over database {desired.name}")
            steps.append(Step(MarkDatabase(desired.name, mark, ""), change))
    held = {one.privilege for one in state.privileges if one.grantee == desired.owner} if state else set[str]()
    if lacking := vocabulary(survey)[ObjectKind.DATABASE] - held:
        on = SecuredObject(ObjectKind.DATABASE, desired.name)
        change = Change("GrantsRestored", f"granted ALL on database {desired.name} to {desired.owner}")
        steps.append(Step(Grant(desired.owner, on, tuple(sorted(lacking)), ""), change))
    return Plan(tuple(steps))


def plan_drop_database(survey: Survey, name: str, claim: Claim | None) -> Plan:
    """See `Contents.plan_drop_database`."""
    state = survey.databases.get(name)
    if state is None or not is_ours(state.mark, claim):
        return Plan()
    return Plan((Step(DropDatabase(name), Change("DatabaseDropped", f"dropped database {name}")),))
