"""Plan for a MySQL or MariaDB account `name`@`%`.

It covers passwords, limits, roles and grants.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from steersman_databases.engines.errors import DefinerInUse, InvalidName, NotSupported, SqlFailed
from steersman_databases.engines.sql.desired import (
    NO_LIMITS,
    DesiredUser,
    OwnershipMark,
    Password,
    PasswordDirective,
    SecurableKind,
)
from steersman_databases.engines.sql.grant_planner import plan_grants
from steersman_databases.engines.sql.inspection import Inspection, RoleMembership, SecuredObject, UserState
from steersman_databases.engines.sql.ownership_marks import (
    has_mark,
    is_marked_by,
    needs_mark,
    require_adoptable,
    same_namespace,
)
from steersman_databases.engines.sql.sql_actions import (
    AlterRole,
    CreateRole,
    DiscardOldPassword,
    DropRole,
    GrantPrivileges,
    GrantRole,
    RevokePrivileges,
    RevokeRole,
    RoleAttributes,
    SetActiveRoles,
    SetVerifier,
    TagUser,
)
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan, SqlStep

from ..sql import verifiers
from .grants import ANY_DATABASE, GRANT_DIALECT, REPLICATION


def plan_user(inspection: Inspection, desired: DesiredUser) -> SqlPlan:
    """See `SqlEngine.plan_user`."""
    state = inspection.users.get(desired.name)
    if inspection.product == "MariaDB":
        _require_supported_by_mariadb(desired)
        if state is not None and state.login != desired.login:
            # On MariaDB roles are not accounts and cannot be converted. The new one receives the declared grants.
            _require_adoptable(inspection, desired, state)
            return SqlPlan((SqlStep(DropRole(desired.name, is_role=not state.login)),), inspect_again=True)
    memberships, missing = _memberships(inspection, desired)
    steps = (*_account(inspection, desired, state), *_replication(inspection, desired), *memberships)
    if state is not None and desired.revoke_undeclared:
        # The operator may lack the right to revoke it. MySQL allows this only for accounts with the same privilege.
        missing += tuple(
            f"{desired.name} can act as {other}: revoke that manually" for other in sorted(state.acts_as)
        )
        missing += tuple(
            f"{desired.name} has {privilege} on the whole server, and the operator lacks it: revoke it manually"
            for privilege in sorted(state.unrevocable)
        )
    return SqlPlan(steps, missing) + plan_grants(inspection, desired, GRANT_DIALECT)


def plan_drop_user(inspection: Inspection, name: str, mark: OwnershipMark | None) -> SqlPlan:
    """See `SqlEngine.plan_drop_user`.

    Objects have no owners here, but those with this definer act as the user.
    """
    state = inspection.users.get(name)
    if state is None or not is_marked_by(state.mark, mark):
        return SqlPlan()
    if definers := inspection.definers.get(name):
        required = DefinerInUse(name, definers)
        if not state.login or state.locked:
            raise required
        # Objects of a locked definer continue to work.
        return SqlPlan((_lock_step(name),), failure=required)
    return SqlPlan(
        (SqlStep(DropRole(name, is_role=not state.login), SqlChange("UserDropped", f"dropped user {name}")),)
    )


def new_verifier(inspection: Inspection, password: str) -> str:
    """Return a verifier in the server's format for new accounts."""
    return (
        verifiers.native_verifier(password) if inspection.product == "MariaDB" else verifiers.sha2_verifier(password)
    )


def _require_supported_by_mariadb(desired: DesiredUser) -> None:
    if not desired.login and (desired.connection_limit != -1 or desired.limits != NO_LIMITS):
        raise NotSupported("limits", "MariaDB does not support it for roles: limit the members")
    if desired.login and len(inherited := _inherited_roles(desired)) > 1:
        reported = ", ".join(sorted(inherited))
        raise NotSupported(
            "roles",
            f"MariaDB activates one role at the login, and not {reported}: set inherit to false for all but one",
        )


def _account(inspection: Inspection, desired: DesiredUser, state: UserState | None) -> Iterator[SqlStep]:
    if not desired.expired:
        _require_no_host_accounts(inspection, desired.name)
    is_role = inspection.product == "MariaDB" and not desired.login
    if state is None:
        _require_no_definer_objects(inspection, desired)
        # The mark comes first: it counts only if the account exists, and an account without mark would have no owner.
        if desired.mark is not None:
            yield SqlStep(TagUser(desired.name, desired.mark.text))
        password = desired.password if isinstance(desired.password, str) else None
        verifier = new_verifier(inspection, password) if password is not None and not is_role else None
        create = CreateRole(desired.name, _desired_attributes(desired, is_role), verifier)
        yield SqlStep(create, SqlChange("UserCreated", f"created user {desired.name}"))
        if not is_role:
            yield from _passwords(inspection, UserState(desired.name, verifier=verifier), desired)
        return
    is_ours = _require_adoptable(inspection, desired, state)
    if desired.mark is not None and needs_mark(state.mark, desired.mark):
        change = None if is_ours else SqlChange("UserAdopted", f"adopted user {desired.name}")
        yield SqlStep(TagUser(desired.name, desired.mark.text), change)
    if is_role:
        return
    expected = _desired_attributes(desired, is_role)
    if expected.locked and not state.locked:
        yield _lock_step(desired.name)
    limits = RoleAttributes(
        connection_limit=expected.connection_limit if state.connection_limit != expected.connection_limit else None,
        limits=expected.limits if state.limits != expected.limits else None,
    )
    if limits != RoleAttributes():
        yield SqlStep(
            AlterRole(desired.name, limits), SqlChange("UserAltered", f"altered the limits of user {desired.name}")
        )
    if state.certificate and isinstance(desired.password, str):
        change = SqlChange("UserAltered", f"altered user {desired.name} (its password works without a certificate)")
        yield SqlStep(AlterRole(desired.name, RoleAttributes(certificate=False)), change)
    yield from _passwords(inspection, state, desired)
    if state.locked and not expected.locked:
        # Last, because the password from before the lock must not become valid again.
        change = SqlChange("UserUnlocked", f"unlocked user {desired.name}")
        yield SqlStep(AlterRole(desired.name, RoleAttributes(locked=False)), change)


def _lock_step(name: str) -> SqlStep:
    return SqlStep(AlterRole(name, RoleAttributes(locked=True)), SqlChange("UserLocked", f"locked user {name}"))


def _require_no_definer_objects(inspection: Inspection, desired: DesiredUser) -> None:
    """Refuse a new user whose name is the definer of existing objects.

    Views and stored programs survive their definer, and would act with the new user's rights.
    """
    if desired.name not in inspection.orphaned or desired.mark is None or desired.adopt:
        return
    if not same_namespace(inspection.orphaned[desired.name], desired.mark):
        raise InvalidName(
            "username",
            desired.name,
            "views or stored programs of a previous user of this name exist, and would run with the new privileges:"
            " choose another username, drop them, or set spec.adopt",
        )


def _desired_attributes(desired: DesiredUser, is_role: bool) -> RoleAttributes:
    """Return the desired attributes.

    An expired account is locked, because the server only supports the age of passwords in days.
    """
    if is_role:
        return RoleAttributes(login=False)
    locked = not desired.login or desired.expired
    return RoleAttributes(locked=locked, connection_limit=desired.connection_limit, limits=desired.limits)


def _require_adoptable(inspection: Inspection, desired: DesiredUser, state: UserState) -> bool:
    """Return True if it already belongs to this object.

    Raises an error if it may not.
    """
    require_adoptable("user", desired.name, state.mark, desired.mark, desired.adopt)
    is_ours = has_mark(state.mark, desired.mark)
    if desired.name in inspection.effective_roles and not is_ours:
        raise InvalidName(
            "username", desired.name, "the administrator has its privileges by this role: choose another username"
        )
    # A foreign account with rights over the server is refused. An owned account loses the rights again.
    is_role = (
        state.replication and not desired.replication and not (is_ours and _has_replication(inspection, desired.name))
    )
    if (state.superuser or is_role) and not (is_ours and (desired.revoke_undeclared or desired.expired)):
        raise _administrator_error(desired.name)
    return is_ours


def _require_no_host_accounts(inspection: Inspection, name: str) -> None:
    """Refuse a name with accounts for narrower hosts.

    Such an account takes precedence over `name`@`%` for logins from there.
    """
    if name in inspection.host_accounts:
        if inspection.host_accounts[name]:
            raise _administrator_error(name)
        raise SqlFailed(
            f"searching for user {name}",
            None,
            "another account of that name exists, for a narrower host or as a role: drop it",
        )


def _replication(inspection: Inspection, desired: DesiredUser) -> Iterator[SqlStep]:
    held = _has_replication(inspection, desired.name)
    # With `revoke_undeclared` it is revoked with all other undeclared privileges.
    if desired.replication != held and (desired.replication or not desired.revoke_undeclared):
        server = SecuredObject(SecurableKind.SERVER, ANY_DATABASE)
        action = GrantPrivileges if desired.replication else RevokePrivileges
        change = SqlChange("UserAltered", f"altered user {desired.name} (replication)")
        todo = action(desired.name, server, (REPLICATION,), "")
        yield SqlStep(todo, change, independent=True, always_run=not desired.replication)


def _has_replication(inspection: Inspection, name: str) -> bool:
    """Return True if it has the privilege itself, not by a role."""
    server = inspection.databases.get(ANY_DATABASE)
    return server is not None and any(
        (one.grantee, one.privilege) == (name, REPLICATION) for one in server.privileges
    )


def _administrator_error(name: str) -> InvalidName:
    return InvalidName(
        "username",
        name,
        "the server has a user of this name with privileges on the whole server:"
        " choose another username, or revoke these privileges",
    )


def _inherited_roles(desired: DesiredUser) -> set[str]:
    """Return the roles that are active after the login."""
    return {one.role for one in desired.roles if (desired.inherit if one.inherit is None else one.inherit)}


def _memberships(inspection: Inspection, desired: DesiredUser) -> tuple[list[SqlStep], tuple[str, ...]]:
    state = inspection.users.get(desired.name)
    held = state.memberships if state is not None else frozenset[RoleMembership]()
    # Roles with rights over the server get no members. The other declared properties are applied, above all an
    # expiry.
    rejected = {
        one.role
        for one in desired.roles
        if (role := inspection.users.get(one.role)) is not None and (role.superuser or role.replication)
    }
    admin = {one.role: None if one.role in rejected else one.admin for one in desired.roles}
    satisfied = {one for one in held if not one.grantor and admin.get(one.role) is one.admin}
    # A membership with other options is revoked, too: another grant would keep the excess options.
    excess = [one for one in held if one not in satisfied and (desired.revoke_undeclared or one.role in admin)]
    steps = [
        SqlStep(
            RevokeRole(desired.name, one.role, one.grantor),
            SqlChange("MembershipRevoked", f"revoked membership in {one.role} from {desired.name}"),
            independent=True,
            always_run=True,
        )
        for one in sorted(excess, key=lambda one: (one.role, one.grantor))
    ]
    there = {one.role for one in satisfied}
    for one in desired.roles:
        if one.role in inspection.users.keys() - rejected - there:
            change = SqlChange("MembershipGranted", f"granted membership in {one.role} to {desired.name}")
            membership = RoleMembership(one.role, "", one.admin)
            steps.append(SqlStep(GrantRole(desired.name, membership), change, independent=True))
    missing = [f"role {one.role} does not exist yet" for one in desired.roles if one.role not in inspection.users]
    missing += [
        f"role {role} has privileges on the whole server: revoke them, or remove the role" for role in rejected
    ]
    return steps + _active_roles(inspection, desired, held, rejected), tuple(sorted(missing))


def _active_roles(
    inspection: Inspection, desired: DesiredUser, credentials: frozenset[RoleMembership], rejected: AbstractSet[str]
) -> list[SqlStep]:
    if inspection.product == "MariaDB" and not desired.login:
        return []
    declared = {one.role for one in desired.roles}
    active = {one.role for one in credentials if one.inherit}
    # MariaDB has one default role, which is then the declared one.
    one = inspection.product == "MariaDB" and bool(_inherited_roles(desired))
    retained = set[str]() if desired.revoke_undeclared or one else active - declared
    expected = retained | ((_inherited_roles(desired) & inspection.users.keys()) - rejected)
    if expected == active:
        return []
    reported = ", ".join(sorted(expected)) or "none"
    change = SqlChange(
        "UserAltered", f"altered user {desired.name} (roles that are active from the login on: {reported})"
    )
    return [SqlStep(SetActiveRoles(desired.name, tuple(sorted(expected))), change, independent=True)]


def _passwords(inspection: Inspection, state: UserState, desired: DesiredUser) -> Iterator[SqlStep]:
    """Yield steps for the current password and the previous one."""
    password, second = (
        desired.password,
        desired.second_credential.password if desired.second_credential is not None else None,
    )
    reset = SqlChange("PasswordReset", f"reset the password of user {state.name}")
    if inspection.product == "MariaDB":
        if isinstance(password, str):
            yield from _passwords_mariadb(inspection, state, password, second, reset)
        return
    matches = isinstance(password, str) and verifiers.matches(password, state.verifier)
    if isinstance(password, str) and isinstance(second, str):
        if matches and verifiers.matches(second, state.second_verifier):
            return
        if not verifiers.matches(second, state.verifier):
            yield SqlStep(SetVerifier(state.name, new_verifier(inspection, second)))
        yield SqlStep(SetVerifier(state.name, new_verifier(inspection, password), retain_current=True), reset)
    else:
        if isinstance(password, str) and not matches:
            yield SqlStep(SetVerifier(state.name, new_verifier(inspection, password)), reset)
        if state.second_verifier is not None and second in (None, PasswordDirective.NONE):
            change = SqlChange("PasswordRemoved", f"discarded the previous password of user {state.name}")
            yield SqlStep(DiscardOldPassword(state.name), change)


def _passwords_mariadb(
    inspection: Inspection, state: UserState, password: str, second: Password | None, reset: SqlChange
) -> Iterator[SqlStep]:
    """Yield the one statement that sets all credentials on MariaDB."""
    matches = verifiers.matches(password, state.verifier)
    second_verifier = new_verifier(inspection, second) if isinstance(second, str) else None
    if isinstance(second, str):
        unchanged = verifiers.matches(second, state.second_verifier)
    else:
        unchanged = state.second_verifier is None or second is PasswordDirective.UNCHANGED
    if matches and unchanged:
        return
    removed = SqlChange("PasswordRemoved", f"removed other credentials of user {state.name} besides its password")
    change = removed if matches and second_verifier is None else reset
    yield SqlStep(
        SetVerifier(state.name, new_verifier(inspection, password), second_verifier=second_verifier), change
    )
