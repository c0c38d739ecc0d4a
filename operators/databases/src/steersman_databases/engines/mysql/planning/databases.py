"""Plan for a MySQL or MariaDB database: existence, and its owner's privileges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from steersman_databases.engines.errors import ImmutableProperty, OwnerMissing
from steersman_databases.engines.sql.desired import DesiredDatabase, OwnershipMark, SecurableKind
from steersman_databases.engines.sql.inspection import DatabaseContents, DatabaseState, Inspection, SecuredObject
from steersman_databases.engines.sql.ownership_marks import has_mark, is_marked_by, require_adoptable
from steersman_databases.engines.sql.sql_actions import (
    AlterDatabase,
    CreateDatabase,
    DropDatabase,
    GrantPrivileges,
    RevokeOrphaned,
    TagDatabase,
)
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan, SqlStep

from .grants import MARIADB_PUBLIC, PUBLIC_ROLES, privileges_of

CHARACTER_SET = "utf8mb4"


def plan_database(inspection: Inspection, desired: DesiredDatabase) -> SqlPlan:
    """See `SqlEngine.plan_database`."""
    steps: list[SqlStep] = []
    state = inspection.databases.get(desired.name)
    mark = desired.mark.text if desired.mark is not None else None
    if state is None or not state.exists:
        # The mark comes first: it counts only if the database exists, and a database without mark would have no
        # owner.
        if mark is not None:
            steps.append(SqlStep(TagDatabase(desired.name, mark, desired.owner, before_creation=True)))
        steps += _revoke_orphaned(inspection, desired)
        create = CreateDatabase(desired.name, desired.encoding or CHARACTER_SET, desired.collation, None, "")
        steps.append(SqlStep(create, SqlChange("DatabaseCreated", f"created database {desired.name}")))
    else:
        require_adoptable("database", desired.name, state.mark, desired.mark, desired.adopt)
        steps += _revoke_public(state)
        steps += _charset_steps(state, desired)
        if mark is not None and (state.mark, state.marked_owner) != (mark, desired.owner):
            steps.append(SqlStep(TagDatabase(desired.name, mark, desired.owner), _adopt_change(state, desired)))
    # Last, because no owner should be created for an impossible database.
    if desired.owner not in inspection.users:
        raise OwnerMissing(desired.owner)
    target = SecuredObject(SecurableKind.DATABASE, desired.name)
    # Patterns do not count, because they match other databases, too.
    found = [one for one in state.privileges if not one.owner_has_same_name] if state is not None else []
    held_privileges = {one.privilege for one in found if (one.grantee, one.target) == (desired.owner, target)}
    if missing := privileges_of(inspection)[SecurableKind.DATABASE] - held_privileges:
        change = SqlChange("GrantsRestored", f"granted ALL on database {desired.name} to {desired.owner}")
        steps.append(SqlStep(GrantPrivileges(desired.owner, target, tuple(sorted(missing)), ""), change))
    return SqlPlan(tuple(steps))


def _adopt_change(state: DatabaseState, desired: DesiredDatabase) -> SqlChange | None:
    if not has_mark(state.mark, desired.mark):
        return SqlChange("DatabaseAdopted", f"adopted database {state.name}")
    if state.marked_owner in ("", desired.owner):
        # The previous owner was dropped, or an earlier version did not record it, or the UID of the namespace.
        return None
    return SqlChange("DatabaseAltered", f"altered database {state.name} (owner {desired.owner})")


def _charset_steps(state: DatabaseState, desired: DesiredDatabase) -> Iterator[SqlStep]:
    """Yield steps for the default character set and collation.

    They apply to new tables, and the owner can change them. Foreign databases keep theirs.
    """
    # A user who adopts a database may declare its present values, or none.
    encoding = desired.encoding or (None if desired.adopt else CHARACTER_SET)
    is_ours = has_mark(state.mark, desired.mark)
    different = [
        (field, found, expected)
        for field, found, expected in (
            ("encoding", state.encoding, encoding if is_ours else desired.encoding),
            ("collation", state.collation, desired.collation),
        )
        if expected is not None and not _is_same_charset(found, expected, state.encoding)
    ]
    if different and not is_ours:
        raise ImmutableProperty(*different[0])
    if different:
        reported = ", ".join(f"{field} {wanted}" for field, _, wanted in different)
        alter = AlterDatabase(state.name, "", encoding=encoding, collation=desired.collation)
        yield SqlStep(
            alter, SqlChange("DatabaseAltered", f"altered database {state.name} ({reported})"), independent=True
        )


def _is_same_charset(found: str, desired: str, encoding: str) -> bool:
    """Return True if both names mean the same.

    `utf8` is an alias of `utf8mb3`, or of a configured set on MariaDB. There a collation may lack its character set.
    """
    found, desired = found.lower(), desired.lower()
    short, _, rest = desired.partition("_")
    spelled = (
        {f"{name}_{rest}" if rest else name for name in ("utf8mb3", "utf8mb4")} if short == "utf8" else set[str]()
    )
    return found in {desired, f"{encoding.lower()}_{desired}", *spelled}


def _revoke_orphaned(inspection: Inspection, desired: DesiredDatabase) -> Iterator[SqlStep]:
    """Yield revocations of grants on a dropped database of this name.

    Grants outlive their database, and would apply to the new one.
    """
    state = inspection.databases.get(desired.name)
    contents = inspection.contents.get(desired.name, DatabaseContents())
    orphaned: dict[tuple[str, SecuredObject, bool], list[str]] = defaultdict(list)
    for one in (*(state.privileges if state is not None else ()), *contents.privileges):
        if one.grantee != desired.owner or one.owner_has_same_name:
            orphaned[one.grantee, one.target, one.owner_has_same_name].append(one.privilege)
    # Columns first: a revocation on a table also affects its columns.
    for (grantee, target, role), privileges in sorted(
        orphaned.items(), key=lambda item: (item[0][1].column is None, str(item[0]))
    ):
        names = tuple(sorted(privileges))
        reported = (
            f"revoked {', '.join(names)} on {target}, a previous object of this name, from {grantee or 'all users'}"
        )
        yield SqlStep(
            RevokeOrphaned(grantee, target, names, role), SqlChange("GrantRevoked", reported), always_run=True
        )


def _revoke_public(state: DatabaseState) -> Iterator[SqlStep]:
    """Yield revocations of privileges that all users have on a database.

    Grants to single users stay.
    """
    for grantee in PUBLIC_ROLES:
        held: dict[SecuredObject, list[str]] = defaultdict(list)
        for one in state.privileges:
            if one.grantee == grantee and one.target.name in (None, state.name):
                held[one.target].append(one.privilege)
        for target, privileges in sorted(held.items(), key=str):
            # On MariaDB a user may have the same name as the role.
            role = grantee == MARIADB_PUBLIC
            revoke = RevokeOrphaned(grantee, target, tuple(sorted(privileges)), role, database_exists=True)
            change = SqlChange("PublicAccessRevoked", f"closed database {state.name} to other users")
            yield SqlStep(revoke, change, independent=True, always_run=True)


def plan_drop_database(inspection: Inspection, name: str, mark: OwnershipMark | None) -> SqlPlan:
    """See `SqlEngine.plan_drop_database`."""
    state = inspection.databases.get(name)
    if state is None or not state.exists:
        # The administrator may have lost its privileges on it. If the server converts names to lower case, a name
        # with capitals could mean another database.
        is_ours = has_mark(inspection.invisible_databases.get(name), mark)
        foreign_mark = inspection.lower_case_names and name != name.lower()
        return SqlPlan((SqlStep(DropDatabase(name)),) if is_ours and not foreign_mark else ())
    if not is_marked_by(state.mark, mark):
        return SqlPlan()
    return SqlPlan((SqlStep(DropDatabase(name), SqlChange("DatabaseDropped", f"dropped database {name}")),))
