"""The plan for an account of MySQL or MariaDB, `name`@`%`: its passwords, its limits, its roles, its grants."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from ..actions import (
    AlterUser,
    Attributes,
    CreateUser,
    DiscardSecond,
    DropUser,
    Grant,
    GrantRole,
    MarkUser,
    Revoke,
    RevokeRole,
    SetDefaultRoles,
    SetVerifier,
)
from ..claims import is_kin, is_ours, require_ours
from ..desired import NO_LIMITS, Claim, DesiredUser, NoPassword, ObjectKind, Password
from ..errors import DefinerNeeded, InvalidName, NotSupported, SqlFailed
from ..granting import plan_grants
from ..plan import Change, Plan, Step
from ..survey import Membership, SecuredObject, Survey, UserState
from . import verifiers
from .grants import EVERYWHERE, GRANTING, REPLICATION


def plan_user(survey: Survey, desired: DesiredUser) -> Plan:
    """See `Contents.plan_user`."""
    state = survey.users.get(desired.name)
    if survey.product == "MariaDB":
        _require_had_by_mariadb(desired)
        if state is not None and state.login != desired.login:
            # There a role is no account, and neither becomes the other; what it may is granted to the new one.
            _require_taken(survey, desired, state)
            return Plan((Step(DropUser(desired.name, role=not state.login)),), again=True)
    memberships, missing = _memberships(survey, desired)
    steps = (*_account(survey, desired, state), *_replication(survey, desired), *memberships)
    if state is not None and desired.exact:
        # Who took it over may have no right to revoke that: MySQL lets those alone who may be in that place, too.
        missing += tuple(f"{desired.name} may act as {other}: revoke that by hand" for other in sorted(state.acts_as))
        missing += tuple(
            f"{desired.name} has {privilege} on the whole server, which only who has it can revoke: do that by hand"
            for privilege in sorted(state.out_of_reach)
        )
    return Plan(steps, missing) + plan_grants(survey, desired, GRANTING)


def plan_drop_user(survey: Survey, name: str, claim: Claim | None) -> Plan:
    """See `Contents.plan_drop_user`. Nothing has an owner here, but what it defined acts as it."""
    state = survey.users.get(name)
    if state is None or not is_ours(state.mark, claim):
        return Plan()
    if acting := survey.acting.get(name):
        needed = DefinerNeeded(name, acting)
        if not state.login or state.locked:
            raise needed
        # What a locked account has defined works on.
        return Plan((_lock(name),), failure=needed)
    return Plan((Step(DropUser(name, role=not state.login), Change("UserDropped", f"dropped user {name}")),))


def new_verifier(survey: Survey, password: str) -> str:
    """As this server keeps passwords of new accounts."""
    return verifiers.native(password) if survey.product == "MariaDB" else verifiers.sha2(password)


def _require_had_by_mariadb(desired: DesiredUser) -> None:
    if not desired.login and (desired.connection_limit != -1 or desired.limits != NO_LIMITS):
        raise NotSupported("limits", "roles of MariaDB have none; limit who is a member")
    if desired.login and len(inherited := _inherited(desired)) > 1:
        told = ", ".join(sorted(inherited))
        raise NotSupported(
            "roles", f"MariaDB activates one role at the login, and not {told}: set inherit to false for all but one"
        )


def _account(survey: Survey, desired: DesiredUser, state: UserState | None) -> Iterator[Step]:
    if not desired.ended:
        _require_alone(survey, desired.name)
    is_role = survey.product == "MariaDB" and not desired.login
    if state is None:
        _require_no_heritage(survey, desired)
        # The mark first: it counts only where the account is there, and an account without would be nobody's.
        if desired.claim is not None:
            yield Step(MarkUser(desired.name, desired.claim.text))
        password = desired.password if isinstance(desired.password, str) else None
        verifier = new_verifier(survey, password) if password is not None and not is_role else None
        create = CreateUser(desired.name, _wanted(desired, is_role), verifier)
        yield Step(create, Change("UserCreated", f"created user {desired.name}"))
        if not is_role:
            yield from _second(survey, UserState(desired.name, verifier=verifier), desired)
        return
    ours = _require_taken(survey, desired, state)
    if desired.claim is not None and not ours:
        yield Step(
            MarkUser(desired.name, desired.claim.text), Change("UserAdopted", f"took over user {desired.name}")
        )
    if is_role:
        return
    wanted = _wanted(desired, is_role)
    if wanted.locked and not state.locked:
        yield _lock(desired.name)
    limits = Attributes(
        connection_limit=wanted.connection_limit if state.connection_limit != wanted.connection_limit else None,
        limits=wanted.limits if state.limits != wanted.limits else None,
    )
    if limits != Attributes():
        yield Step(
            AlterUser(desired.name, limits), Change("UserAltered", f"altered the limits of user {desired.name}")
        )
    if state.certificate and isinstance(desired.password, str):
        change = Change("UserAltered", f"altered user {desired.name} (its password opens without a certificate)")
        yield Step(AlterUser(desired.name, Attributes(certificate=False)), change)
    yield from _second(survey, state, desired)
    if state.locked and not wanted.locked:
        # Last: the password that it had when it was locked must not open it again.
        change = Change("UserUnlocked", f"unlocked user {desired.name}")
        yield Step(AlterUser(desired.name, Attributes(locked=False)), change)


def _lock(name: str) -> Step:
    return Step(AlterUser(name, Attributes(locked=True)), Change("UserLocked", f"locked user {name}"))


def _require_no_heritage(survey: Survey, desired: DesiredUser) -> None:
    """Views and stored programs outlive their definer here, and their makers would then act as the new one."""
    if desired.name not in survey.orphaned or desired.claim is None or desired.adopt:
        return
    if not is_kin(survey.orphaned[desired.name], desired.claim):
        raise InvalidName(
            "username",
            desired.name,
            "views or stored programs of a former user of this name are left, and would act with this one's rights:"
            " choose another username, drop them, or set spec.adopt",
        )


def _wanted(desired: DesiredUser, is_role: bool) -> Attributes:
    """The account as it is to be. After its end it is locked: the server knows passwords' ages alone, in days."""
    if is_role:
        return Attributes(login=False)
    locked = not desired.login or desired.ended
    return Attributes(locked=locked, connection_limit=desired.connection_limit, limits=desired.limits)


def _require_taken(survey: Survey, desired: DesiredUser, state: UserState) -> bool:
    """Whether it is this object's already. Raises where it may not become so."""
    require_ours("user", desired.name, state.mark, desired.claim, desired.adopt)
    ours = desired.claim is not None and state.mark == desired.claim.text
    if desired.name in survey.acts_by and not ours:
        raise InvalidName("username", desired.name, "the administrator acts by this role; choose another username")
    # What somebody else made mighty is not taken; what is ours loses the rights again.
    by_a_role = state.replication and not desired.replication and not (ours and _replicates(survey, desired.name))
    if (state.superuser or by_a_role) and not (ours and (desired.exact or desired.ended)):
        raise _mighty(desired.name)
    return ours


def _require_alone(survey: Survey, name: str) -> None:
    """An account for a narrower host comes first for who connects from there, whatever stands in `name`@`%`."""
    if name in survey.narrower:
        if survey.narrower[name]:
            raise _mighty(name)
        raise SqlFailed(
            f"looking for user {name}",
            None,
            "another account of that name, for a narrower host or as a role, is there besides: drop it",
        )


def _replication(survey: Survey, desired: DesiredUser) -> Iterator[Step]:
    held = _replicates(survey, desired.name)
    # Where only the declared is kept, it goes with all else that is too much.
    if desired.replication != held and (desired.replication or not desired.exact):
        server = SecuredObject(ObjectKind.SERVER, EVERYWHERE)
        action = Grant if desired.replication else Revoke
        change = Change("UserAltered", f"altered user {desired.name} (replication)")
        todo = action(desired.name, server, (REPLICATION,), "")
        yield Step(todo, change, alone=True, takes=not desired.replication)


def _replicates(survey: Survey, name: str) -> bool:
    """Whether it may by itself, by no role."""
    server = survey.databases.get(EVERYWHERE)
    return server is not None and any(
        (one.grantee, one.privilege) == (name, REPLICATION) for one in server.privileges
    )


def _mighty(name: str) -> InvalidName:
    return InvalidName(
        "username",
        name,
        "the server has a user of this name with rights over the whole server;"
        " choose another username, or revoke these rights",
    )


def _inherited(desired: DesiredUser) -> set[str]:
    """The roles that are active from the login on."""
    return {one.role for one in desired.roles if (desired.inherit if one.inherit is None else one.inherit)}


def _memberships(survey: Survey, desired: DesiredUser) -> tuple[list[Step], tuple[str, ...]]:
    state = survey.users.get(desired.name)
    held = state.memberships if state is not None else frozenset[Membership]()
    # Who makes its members mighty has none: what else is declared is done, an end above all.
    refused = {
        one.role
        for one in desired.roles
        if (role := survey.users.get(one.role)) is not None and (role.superuser or role.replication)
    }
    admin = {one.role: None if one.role in refused else one.admin for one in desired.roles}
    fitting = {one for one in held if not one.grantor and admin.get(one.role) is one.admin}
    # One that fits not quite is revoked too: granted again, it would keep what it has too much.
    excess = [one for one in held if one not in fitting and (desired.exact or one.role in admin)]
    steps = [
        Step(
            RevokeRole(desired.name, one.role, one.grantor),
            Change("MembershipRevoked", f"revoked membership in {one.role} from {desired.name}"),
            alone=True,
            takes=True,
        )
        for one in sorted(excess, key=lambda one: (one.role, one.grantor))
    ]
    there = {one.role for one in fitting}
    for one in desired.roles:
        if one.role in survey.users.keys() - refused - there:
            change = Change("MembershipGranted", f"made {desired.name} a member of {one.role}")
            membership = Membership(one.role, "", one.admin)
            steps.append(Step(GrantRole(desired.name, membership), change, alone=True))
    missing = [f"role {one.role} is not there yet" for one in desired.roles if one.role not in survey.users]
    missing += [f"role {role} has rights over the whole server: revoke them, or leave it out" for role in refused]
    return steps + _defaults(survey, desired, held, refused), tuple(sorted(missing))


def _defaults(
    survey: Survey, desired: DesiredUser, held: frozenset[Membership], refused: AbstractSet[str]
) -> list[Step]:
    if survey.product == "MariaDB" and not desired.login:
        return []
    declared = {one.role for one in desired.roles}
    active = {one.role for one in held if one.inherit}
    # MariaDB has one, which is then the declared.
    one = survey.product == "MariaDB" and bool(_inherited(desired))
    kept = set[str]() if desired.exact or one else active - declared
    wanted = kept | ((_inherited(desired) & survey.users.keys()) - refused)
    if wanted == active:
        return []
    told = ", ".join(sorted(wanted)) or "none"
    change = Change("UserAltered", f"altered user {desired.name} (roles that are active from the login on: {told})")
    return [Step(SetDefaultRoles(desired.name, tuple(sorted(wanted))), change, alone=True)]


def _second(survey: Survey, state: UserState, desired: DesiredUser) -> Iterator[Step]:
    """The password that opens, and the former one beside it for as long as it is to."""
    password, second = desired.password, desired.second.password if desired.second is not None else None
    reset = Change("PasswordReset", f"reset the password of user {state.name}")
    if survey.product == "MariaDB":
        if isinstance(password, str):
            yield from _at_once(survey, state, password, second, reset)
        return
    opens = isinstance(password, str) and verifiers.opens(password, state.verifier)
    if isinstance(password, str) and isinstance(second, str):
        if opens and verifiers.opens(second, state.second_verifier):
            return
        if not verifiers.opens(second, state.verifier):
            yield Step(SetVerifier(state.name, new_verifier(survey, second)))
        yield Step(SetVerifier(state.name, new_verifier(survey, password), retain=True), reset)
    else:
        if isinstance(password, str) and not opens:
            yield Step(SetVerifier(state.name, new_verifier(survey, password)), reset)
        if state.second_verifier is not None and second in (None, NoPassword.NONE):
            change = Change("PasswordRemoved", f"the former password of user {state.name} is gone")
            yield Step(DiscardSecond(state.name), change)


def _at_once(
    survey: Survey, state: UserState, password: str, second: Password | None, reset: Change
) -> Iterator[Step]:
    """By the one statement of MariaDB's that says all that opens an account."""
    opens = verifiers.opens(password, state.verifier)
    beside = new_verifier(survey, second) if isinstance(second, str) else None
    if isinstance(second, str):
        stays = verifiers.opens(second, state.second_verifier)
    else:
        stays = state.second_verifier is None or second is NoPassword.UNCHANGED
    if opens and stays:
        return
    removed = Change("PasswordRemoved", f"what opened user {state.name} beside its password is gone")
    change = removed if opens and beside is None else reset
    yield Step(SetVerifier(state.name, new_verifier(survey, password), beside=beside), change)
