"""Memberships of PostgreSQL roles: plan grants and revocations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from steersman_databases.engines.sql.desired import (
    DesiredMembership,
    DesiredUser,
)
from steersman_databases.engines.sql.inspection import Inspection, RoleMembership, UserState
from steersman_databases.engines.sql.sql_actions import (
    GrantRole,
    RevokeRole,
)
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan, SqlStep

MEMBERSHIP_OPTIONS_SINCE_VERSION = 16


def plan_memberships(inspection: Inspection, desired: DesiredUser) -> SqlPlan:
    state = inspection.users.get(desired.name) or UserState(desired.name)
    declared = {want.role: want for want in desired.roles}
    # The other declared properties are applied in any case, above all an expiry.
    forbidden = {name for name, want in declared.items() if is_unsupported(inspection, want)}
    privileged = {name: roles for name in declared if (roles := superuser_via(inspection, name))}
    expected = {
        name: _with_server_defaults(inspection, desired, declared[name])
        for name in declared.keys() - forbidden - privileged.keys()
    }
    satisfied = [
        one
        for one in state.memberships
        if one.role in expected and one.grantor != desired.name and is_satisfied(inspection, one, expected[one.role])
    ]
    # A membership with other options is revoked, too: a second one besides it would leave the excess options.
    unsatisfied = [
        one
        for one in state.memberships
        if one not in satisfied and one.role not in forbidden and (desired.revoke_undeclared or one.role in declared)
    ]
    removal, remaining = remove_memberships(inspection, state, unsatisfied)
    missing = [f"role {name} does not exist yet" for name in declared if name not in inspection.users]
    missing += [
        f"PostgreSQL {inspection.version[0]} does not support inherit and set of the membership in {name}"
        for name in sorted(forbidden)
    ]
    for name, roles in sorted(privileged.items()):
        others = "" if name in roles else f" by {', '.join(sorted(roles))}"
        missing.append(f"role {name} has privileges on the whole server{others}: revoke them, or remove the role")
    there = {one.role for one in satisfied} | remaining
    not_granted = [expected[name] for name in declared if name in expected.keys() & inspection.users.keys() - there]
    granted = SqlPlan(tuple(_granted(inspection, desired.name, want) for want in not_granted))
    return SqlPlan(missing=tuple(missing)) + removal + granted


def remove_memberships(
    inspection: Inspection, state: UserState, memberships: Iterable[RoleMembership]
) -> tuple[SqlPlan, set[str]]:
    """Plan the removal of memberships.

    Returns also the roles that the user stays in. There it granted memberships to others, which must be revoked
    first.
    """
    # Memberships that it granted itself come first, because they depend on the received ones.
    removed_roles = sorted(memberships, key=lambda one: (one.grantor != state.name, one.role, one.grantor))
    remaining = {one.role for one in removed_roles if one.admin and granted_to(state, one.role)}
    missing = [
        f"{state.name} keeps the membership in {name}, because it granted it to {', '.join(granted_to(state, name))}:"
        " revoke that first"
        for name in sorted(remaining)
    ]
    removed = [one for one in removed_roles if not (one.admin and one.role in remaining)]
    return SqlPlan(tuple(_revoked(inspection, state.name, one) for one in removed), tuple(missing)), remaining


def is_unsupported(inspection: Inspection, desired: DesiredMembership) -> bool:
    """Return True if the server does not support such a membership."""
    return inspection.version[0] < MEMBERSHIP_OPTIONS_SINCE_VERSION and (
        desired.inherit is not None or desired.set_role is not None
    )


def superuser_via(inspection: Inspection, role: str) -> frozenset[str]:
    """Return the roles through which a role has rights over the server.

    This may be the role itself, or a role that it is a member of.
    """
    return inspection.users[role].superuser_via if role in inspection.users else frozenset()


def granted_to(state: UserState, role: str) -> list[str]:
    return sorted(member for admitted, member in state.granted_members if admitted == role and member != state.name)


def _with_server_defaults(
    inspection: Inspection, desired: DesiredUser, expected: DesiredMembership
) -> DesiredMembership:
    """Fill in the server's defaults for undeclared options.

    The server does not update `inherit` when the attribute of the role changes.
    """
    if inspection.version[0] >= MEMBERSHIP_OPTIONS_SINCE_VERSION:
        inherit = desired.inherit if expected.inherit is None else expected.inherit
        return replace(expected, inherit=inherit, set_role=expected.set_role is not False)
    return expected


def _revoked(inspection: Inspection, name: str, one: RoleMembership) -> SqlStep:
    change = SqlChange("MembershipRevoked", f"revoked membership in {one.role} from {name}")
    ordinary = inspection.version[0] < MEMBERSHIP_OPTIONS_SINCE_VERSION or one.grantor == inspection.administrator
    revoke = RevokeRole(name, one.role, one.grantor, elevated=not ordinary)
    return SqlStep(revoke, change, independent=True, always_run=True)


def _granted(inspection: Inspection, name: str, desired: DesiredMembership) -> SqlStep:
    elevated = not administers(inspection, desired.role)
    membership = RoleMembership(
        desired.role, inspection.administrator, desired.admin, desired.inherit, desired.set_role
    )
    change = SqlChange("MembershipGranted", f"granted membership in {desired.role} to {name}")
    return SqlStep(GrantRole(name, membership, elevated), change, independent=True)


def administers(inspection: Inspection, role: str) -> bool:
    """Return True if the operator may grant membership in a role.

    Only a superuser may grant predefined roles.
    """
    if inspection.superuser or inspection.version[0] < MEMBERSHIP_OPTIONS_SINCE_VERSION:
        return True
    state = inspection.users.get(role)
    return state is not None and any(one.role == inspection.administrator and one.admin for one in state.members)


def is_satisfied(inspection: Inspection, membership: RoleMembership, desired: DesiredMembership) -> bool:
    options = inspection.version[0] < MEMBERSHIP_OPTIONS_SINCE_VERSION or (
        membership.inherit,
        membership.set_role,
    ) == (
        desired.inherit,
        desired.set_role,
    )
    return options and membership.admin == desired.admin
