"""Plan for a PostgreSQL user: role, attributes, password, rotation role, memberships.

A user whose password rotates has a rotation role, which is a member of the user and acts as the user from its
first statement on. So there are two names and two passwords, but one owner of all objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Literal

from steersman_databases.engines.errors import ConcurrentChange, InvalidName, NoReassignTarget, SqlFailed
from steersman_databases.engines.postgresql.planning.memberships import (
    MEMBERSHIP_OPTIONS_SINCE_VERSION,
    administers,
    is_satisfied,
    plan_memberships,
    remove_memberships,
    superuser_via,
)
from steersman_databases.engines.postgresql.sql.accounts import verifiers
from steersman_databases.engines.sql.desired import (
    DesiredMembership,
    DesiredUser,
    OwnershipMark,
    Password,
    PasswordDirective,
)
from steersman_databases.engines.sql.grant_planner import plan_grants
from steersman_databases.engines.sql.inspection import Inspection, RoleMembership, UserState
from steersman_databases.engines.sql.ownership_marks import has_mark, is_marked_by, needs_mark, require_adoptable
from steersman_databases.engines.sql.sql_actions import (
    NO_EXPIRY,
    AlterRole,
    CreateRole,
    DropRole,
    GrantRole,
    ReassignOwned,
    RoleAttributes,
    SetRoleSetting,
    SetVerifier,
    TagUser,
    TerminateSessions,
)
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan, SqlStep

from ..sql.inspection import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from . import foreign_grants
from .grants import GRANT_DIALECT
from .identifiers import check_name, is_system_role, rotation_role_name


@dataclass(frozen=True, slots=True)
class _DesiredRole:
    """Desired state of a role: the user itself, or its rotation role."""

    name: str
    attributes: RoleAttributes
    password: Password
    mark: OwnershipMark | None
    adopt: bool


def plan_user(inspection: Inspection, desired: DesiredUser) -> SqlPlan:
    """See `SqlEngine.plan_user`."""
    itself = SqlPlan(tuple(_role_steps(inspection, _desired_role(desired)))) + _rotation_role(inspection, desired)
    return itself + plan_memberships(inspection, desired) + plan_grants(inspection, desired, GRANT_DIALECT)


def plan_drop_user(inspection: Inspection, name: str, mark: OwnershipMark | None, new_owner: str | None) -> SqlPlan:
    """See `SqlEngine.plan_drop_user`."""
    states = [
        state
        for role in (rotation_role_name(name), name)
        if (state := inspection.users.get(role)) is not None
        and is_marked_by(state.mark, mark)
        and (role == name or mark is not None)
    ]
    revoke_login = tuple(step for state in states for step in _revoke_login(inspection, state))
    try:
        if states and new_owner is not None:
            check_name("reassignTo", new_owner)
        dropped = tuple(_drop_steps(inspection, states, name, new_owner))
    except (NoReassignTarget, InvalidName, SqlFailed) as failure:
        if not revoke_login:
            raise
        return SqlPlan(revoke_login, failure=failure)
    return SqlPlan((*revoke_login, *dropped))


def _revoke_login(inspection: Inspection, state: UserState) -> Iterator[SqlStep]:
    """Revoke the login and all rights over the server before other steps.

    The operator is about to act as this role.
    """
    last = RoleAttributes(login=False if state.login else None)
    if _operator_can_create_roles(inspection):
        last = replace(last, **_excess_attributes(state, RoleAttributes()))
    if last != RoleAttributes():
        elevated = not inspection.superuser and not _is_administered(inspection, state)
        yield SqlStep(AlterRole(state.name, last, elevated or _needs_superuser(inspection, state)))


def _drop_steps(
    inspection: Inspection, states: list[UserState], name: str, new_owner: str | None
) -> Iterator[SqlStep]:
    for state in states:
        if state.name != name and (remaining := _foreign_grants(inspection, state)):
            # The server would report only the number of objects in other databases.
            raise SqlFailed(f"dropping user {state.name}", None, "; ".join(foreign_grants.describe(remaining)))
        yield from _ensure_administered(inspection, state)
    # For both roles, and before the transfer: objects of a session that commits later would be dropped.
    yield from (SqlStep(TerminateSessions(state.name)) for state in states)
    for state in states:
        role, owned = state.name, state.owns_in | _databases_with_owned(inspection, state.name)
        new_owners: dict[str, str | None] = {}
        # Databases with objects inside come first: the maintenance database may be one of them, with its own new
        # owner.
        for database in sorted(
            state.has_privileges_in | owned, key=lambda one: (one not in state.has_privileges_inside, one)
        ):
            target = name if role != name else new_owner
            if target is None and database in owned:
                target = _reassign_target(inspection, name, database)
            # The rotation role acts as the user already.
            if target is not None and role == name:
                _require_safe_reassign(inspection, role, database, target)
            new_owners.setdefault(_database_to_free(inspection, state, database), target)
        yield from (SqlStep(ReassignOwned(place, role, to)) for place, to in new_owners.items())
        yield SqlStep(DropRole(role), SqlChange("UserDropped", f"dropped user {role}"))


def _database_to_free(inspection: Inspection, state: UserState, database: str) -> str:
    """Return the database in which statements release a role's dependencies.

    A role without objects inside is not blocked by a database that refuses connections.
    """
    return database if database in state.has_privileges_inside else inspection.maintenance_database


def _databases_with_owned(inspection: Inspection, role: str) -> set[str]:
    return {database.name for database in inspection.databases.values() if database.owner == role}


def _reassign_target(inspection: Inspection, name: str, database: str) -> str:
    state = inspection.databases.get(database)
    if state is None:
        # All databases of a dropped user are inspected, so this one appeared or disappeared during the inspection.
        raise ConcurrentChange(SqlFailed(f"dropping user {name}", "3D000", f"database {database} was not seen"))
    if not state.owner or state.owner == name:
        raise NoReassignTarget(name, database, "it owns the database itself")
    return state.owner


def _require_safe_reassign(inspection: Inspection, name: str, database: str, new_owner: str) -> None:
    """Refuse a new owner with privileges on the whole server.

    Views and SECURITY DEFINER functions act with their owner's rights.
    """
    if new_owner == inspection.administrator or is_system_role(new_owner) or superuser_via(inspection, new_owner):
        raise NoReassignTarget(
            name, database, f"{new_owner} has privileges on the whole server, which its views would use"
        )


def _desired_role(desired: DesiredUser) -> _DesiredRole:
    attributes = RoleAttributes(
        login=desired.login,
        inherit=desired.inherit,
        superuser=False,
        create_role=False,
        create_database=desired.create_database,
        replication=desired.replication,
        bypass_row_level_security=desired.bypass_row_level_security,
        connection_limit=desired.connection_limit,
        valid_until=_valid_until(desired.valid_until),
    )
    return _DesiredRole(desired.name, attributes, desired.password, desired.mark, desired.adopt)


def _valid_until(declared: datetime | None) -> datetime:
    """Return the expiry as an inspection will report it."""
    return NO_EXPIRY if declared is None or declared >= LATEST_TIMESTAMP else max(declared, EARLIEST_TIMESTAMP)


def _role_steps(inspection: Inspection, role: _DesiredRole) -> Iterator[SqlStep]:
    state = inspection.users.get(role.name)
    if state is None:
        password = role.password if isinstance(role.password, str) else None
        verifier = verifiers.scram_verifier(password) if password is not None else None
        # Only a superuser can grant these two, and the role that creates a role administers it.
        unprivileged = replace(role.attributes, replication=False, bypass_row_level_security=False)
        created = CreateRole(role.name, unprivileged, verifier, role.mark.text if role.mark else None)
        yield SqlStep(created, SqlChange("UserCreated", f"created user {role.name}"))
        if not inspection.superuser:
            yield SqlStep(_grant_admin(inspection, role.name, elevated=False))
        if unprivileged != role.attributes:
            additional = RoleAttributes(
                replication=role.attributes.replication,
                bypass_row_level_security=role.attributes.bypass_row_level_security,
            )
            yield SqlStep(AlterRole(role.name, additional))
        return
    require_adoptable("user", role.name, state.mark, role.mark, role.adopt)
    is_ours = has_mark(state.mark, role.mark)
    _require_unprivileged(state, role, is_ours)
    if not is_ours:
        _require_not_own_grantor(inspection, state)
    if _operator_can_create_roles(inspection) and (excess := _excess_attributes(state, role.attributes)):
        # First, because the operator is about to act as this role.
        yield SqlStep(AlterRole(role.name, RoleAttributes(**excess)), _alter_change("altered", state, excess))
        state = replace(state, **excess)
    yield from _ensure_administered(inspection, state)
    if role.mark is not None and needs_mark(state.mark, role.mark):
        change = None if is_ours else SqlChange("UserAdopted", f"adopted user {role.name}")
        yield SqlStep(TagUser(role.name, role.mark.text), change)
    # The password comes first: a previous one must not become valid when access is widened.
    yield from _password(inspection, state, role)
    yield from _attributes(inspection, state, role.attributes)


def _require_unprivileged(state: UserState, role: _DesiredRole, is_ours: bool) -> None:
    """Refuse a foreign role with privileges on the whole server.

    An owned role loses such rights again.
    """
    desired = role.attributes
    if not is_ours and (
        state.superuser
        or state.create_role
        or (state.replication and not desired.replication)
        or (state.bypass_row_level_security and not desired.bypass_row_level_security)
    ):
        raise InvalidName(
            "username",
            state.name,
            "the server has a role of this name with privileges on the whole server"
            " (SUPERUSER, REPLICATION, CREATEROLE or BYPASSRLS): choose another username,"
            " or remove these attributes from the role",
        )
    if not is_ours and (roles := state.superuser_via - {state.name}):
        raise InvalidName(
            "username",
            state.name,
            f"the server has a role of this name that can act as {', '.join(sorted(roles))}, with privileges on the "
            "whole server: choose another username, or revoke these memberships",
        )


def _require_not_own_grantor(inspection: Inspection, state: UserState) -> None:
    """Refuse a role through which the operator's login has rights.

    All members lose the rights that the role loses.
    """
    given = [one for one in state.members if one.role == inspection.administrator != one.grantor]
    if not _operator_can_create_roles(inspection) and any(one.inherit is not False for one in given):
        raise InvalidName(
            "username",
            state.name,
            f"the server's administrator {inspection.administrator} has privileges by this role, and would lose "
            "them: "
            "choose another username, or revoke the membership (since version 16: grant it WITH INHERIT FALSE)",
        )


def _needs_superuser(inspection: Inspection, state: UserState) -> bool:
    """Return True if only a superuser may alter or drop the role."""
    return state.superuser or (state.replication and inspection.version[0] < MEMBERSHIP_OPTIONS_SINCE_VERSION)


def _operator_can_create_roles(inspection: Inspection) -> bool:
    return inspection.superuser or inspection.can_elevate


def _excess_attributes(state: UserState, desired: RoleAttributes) -> dict[str, Any]:
    """Return privileges on the whole server that the role should not have."""
    rights = ("superuser", "create_role", "replication", "bypass_row_level_security")
    return {name: False for name in rights if getattr(state, name) and not getattr(desired, name)}


def _ensure_administered(inspection: Inspection, state: UserState) -> Iterator[SqlStep]:
    if not inspection.superuser and not _is_administered(inspection, state):
        # A role with the admin option, such as its creator since version 16, cannot grant itself further options.
        elevated = inspection.version[0] < MEMBERSHIP_OPTIONS_SINCE_VERSION or not administers(inspection, state.name)
        yield SqlStep(_grant_admin(inspection, state.name, elevated))


def _is_administered(inspection: Inspection, state: UserState) -> bool:
    held = [membership for membership in state.members if membership.role == inspection.administrator]
    if inspection.version[0] < MEMBERSHIP_OPTIONS_SINCE_VERSION:
        return bool(held)
    inherits = inspection.can_elevate or any(one.inherit for one in held)
    return inherits and any(one.set_role for one in held) and any(one.admin for one in held)


def _grant_admin(inspection: Inspection, name: str, elevated: bool) -> GrantRole:
    """Return the membership with which the operator can act as its role.

    It inherits the role's rights only if there is no other way to have enough rights.
    """
    if inspection.version[0] < MEMBERSHIP_OPTIONS_SINCE_VERSION:
        return GrantRole(
            inspection.administrator, RoleMembership(name, inspection.administrator, admin=elevated), elevated
        )
    inherit = not inspection.can_elevate
    return GrantRole(
        inspection.administrator,
        RoleMembership(name, inspection.administrator, elevated, inherit, set_role=True),
        elevated,
    )


def _attributes(inspection: Inspection, state: UserState, desired: RoleAttributes) -> Iterator[SqlStep]:
    there = _current_attributes(state)
    names = [
        one.name for one in fields(desired) if getattr(desired, one.name) not in (None, getattr(there, one.name))
    ]
    if names:
        change = _alter_change("unlocked" if _widens_access(there, desired) else "altered", state, names)
        changed = RoleAttributes(**{name: getattr(desired, name) for name in names})
        yield SqlStep(AlterRole(state.name, changed, _needs_superuser(inspection, state)), change)


def _alter_change(verb: Literal["altered", "unlocked"], state: UserState, names: Iterable[str]) -> SqlChange:
    message = f"{verb} user {state.name} ({', '.join(names).replace('_', ' ')})"
    return SqlChange(f"User{verb.capitalize()}", message)


def _current_attributes(state: UserState) -> RoleAttributes:
    return RoleAttributes(
        login=state.login,
        inherit=state.inherit,
        superuser=state.superuser,
        create_role=state.create_role,
        create_database=state.create_database,
        replication=state.replication,
        bypass_row_level_security=state.bypass_row_level_security,
        connection_limit=state.connection_limit,
        valid_until=state.valid_until or NO_EXPIRY,
    )


def _widens_access(there: RoleAttributes, desired: RoleAttributes) -> bool:
    return (
        (desired.login and not there.login)
        or (desired.valid_until or NO_EXPIRY) > (there.valid_until or NO_EXPIRY)
        or (there.connection_limit == 0 and desired.connection_limit != 0)
    ) is True


def _password(inspection: Inspection, state: UserState, role: _DesiredRole) -> Iterator[SqlStep]:
    password = role.password
    if password is PasswordDirective.UNCHANGED:
        return
    if isinstance(password, PasswordDirective):
        # A password that cannot be read is removed when the expiry, or another barrier to its use, is removed.
        unverifiable = not inspection.verifiers_readable and _widens_access(
            _current_attributes(state), role.attributes
        )
        if unverifiable or (inspection.verifiers_readable and state.verifier is not None):
            remove = SetVerifier(state.name, None, elevated=_needs_superuser(inspection, state))
            yield SqlStep(remove, SqlChange("PasswordRemoved", f"removed the password of {state.name}"))
        return
    matches = (
        verifiers.matches(password, state.verifier)
        if inspection.verifiers_readable
        else inspection.login_results.get(state.name, True)
    )
    if not matches:
        change = SqlChange("PasswordReset", f"reset the password of user {state.name}")
        verifier = verifiers.scram_verifier(password)
        yield SqlStep(SetVerifier(state.name, verifier, elevated=_needs_superuser(inspection, state)), change)


def _rotation_role(inspection: Inspection, desired: DesiredUser) -> SqlPlan:
    name = rotation_role_name(desired.name)
    state = inspection.users.get(name)
    if desired.second_credential is None:
        if state is None or not has_mark(state.mark, desired.mark):
            return SqlPlan()
        steps = (
            *_revoke_login(inspection, state),
            *_ensure_administered(inspection, state),
            SqlStep(TerminateSessions(name)),
        )
        remaining = _foreign_grants(inspection, state)
        steps += tuple(_reassign_to_user(inspection, state, desired.name, state.has_privileges_in - remaining.keys()))
        if remaining:
            return SqlPlan(steps, foreign_grants.describe(remaining))
        return SqlPlan((*steps, SqlStep(DropRole(name), SqlChange("UserDropped", f"dropped user {name}"))))
    attributes = RoleAttributes(
        login=desired.login,
        inherit=True,
        superuser=False,
        create_role=False,
        create_database=False,
        replication=False,
        bypass_row_level_security=False,
        connection_limit=desired.connection_limit,
        # Its own expiry: if it has the newer password, the user's password expires after the overlap.
        valid_until=_valid_until(desired.second_credential.valid_until),
    )
    role = _DesiredRole(name, attributes, desired.second_credential.password, desired.mark, desired.adopt)
    plan = SqlPlan(tuple(_role_steps(inspection, role))) + _rotation_role_membership(
        inspection, state or UserState(name), desired
    )
    if state is None or f"role={desired.name}" not in state.settings:
        plan += SqlPlan((SqlStep(SetRoleSetting(name, desired.name)),))
    if state is None:
        return plan
    remaining = _foreign_grants(inspection, state)
    reported = foreign_grants.describe(remaining) if desired.revoke_undeclared else ()
    return plan + SqlPlan(
        tuple(_reassign_to_user(inspection, state, desired.name, state.has_privileges_in - remaining.keys())),
        reported,
    )


def _rotation_role_membership(inspection: Inspection, state: UserState, desired: DesiredUser) -> SqlPlan:
    """Plan the only membership of the rotation role: in its user.

    The user may not exist yet.
    """
    inherit, act = (True, True) if inspection.version[0] >= MEMBERSHIP_OPTIONS_SINCE_VERSION else (None, None)
    expected = DesiredMembership(desired.name, False, inherit, act)
    own = [one for one in state.memberships if one.role == desired.name]
    satisfied = [one for one in own if is_satisfied(inspection, one, expected)]
    effective = state.memberships if desired.revoke_undeclared else own
    plan, remaining = remove_memberships(inspection, state, [one for one in effective if one not in satisfied])
    if not satisfied and desired.name not in remaining:
        plan += SqlPlan(
            (
                SqlStep(
                    GrantRole(state.name, RoleMembership(desired.name, inspection.administrator, False, inherit, act))
                ),
            )
        )
    return plan


def _foreign_grants(inspection: Inspection, state: UserState) -> Mapping[str, tuple[str, ...]]:
    """Return databases where the rotation role has only foreign grants, with descriptions."""
    if _operator_can_create_roles(inspection):
        return {}
    return foreign_grants.foreign_grants_of(
        inspection,
        state.name,
        state.has_privileges_in - state.owns_in - _databases_with_owned(inspection, state.name),
    )


def _reassign_to_user(
    inspection: Inspection, state: UserState, user: str, databases: Iterable[str]
) -> Iterator[SqlStep]:
    """Yield steps that transfer objects of the rotation role to its user.

    Such objects were created after SET ROLE NONE.
    """
    for database in sorted(databases):
        change = SqlChange(
            "OwnerRestored", f"reassigned the objects of {state.name} in database {database} to {user}"
        )
        yield SqlStep(
            ReassignOwned(_database_to_free(inspection, state, database), state.name, user), change, independent=True
        )
