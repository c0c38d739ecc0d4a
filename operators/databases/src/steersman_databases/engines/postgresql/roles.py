"""The plan for a user of PostgreSQL: the role, what it may do by itself, its password, its deputy, its memberships.

A user whose password rotates has a *deputy*, a role of its own that is a member of the user and acts as it from the
first statement on: two names, two passwords, one owner of everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Literal

from ..actions import (
    FOREVER,
    AlterUser,
    Attributes,
    CreateUser,
    DropUser,
    EndSessions,
    GrantRole,
    MarkUser,
    Reassign,
    RevokeRole,
    SetRoleSetting,
    SetVerifier,
)
from ..claims import is_ours, require_ours
from ..desired import Claim, DesiredMembership, DesiredUser, NoPassword, Password
from ..errors import HeirMissing, InvalidName, Raced, SqlFailed
from ..granting import plan_grants
from ..plan import Change, Plan, Step
from ..survey import Membership, Survey, UserState
from . import kept, verifiers
from .grants import GRANTING
from .names import check_name, deputy_name, is_the_servers
from .survey import EARLIEST, LATEST

INHERITING = 16
"""The first version in which a membership says by itself whether it is inherited, and who may act as the role."""


@dataclass(frozen=True, slots=True)
class _Role:
    """A role as it is to be: the user itself, or its deputy."""

    name: str
    attributes: Attributes
    password: Password
    claim: Claim | None
    adopt: bool


def plan_user(survey: Survey, desired: DesiredUser) -> Plan:
    """See `Contents.plan_user`."""
    itself = Plan(tuple(_role(survey, _itself(desired)))) + _deputy(survey, desired)
    return itself + _memberships(survey, desired) + plan_grants(survey, desired, GRANTING)


def plan_drop_user(survey: Survey, name: str, claim: Claim | None, heir: str | None) -> Plan:
    """See `Contents.plan_drop_user`."""
    states = [
        state
        for role in (deputy_name(name), name)
        if (state := survey.users.get(role)) is not None
        and is_ours(state.mark, claim)
        and (role == name or claim is not None)
    ]
    shut = tuple(step for state in states for step in _shut(survey, state))
    try:
        if states and heir is not None:
            check_name("reassignTo", heir)
        dropped = tuple(_dropped(survey, states, name, heir))
    except (HeirMissing, InvalidName, SqlFailed) as failure:
        if not shut:
            raise
        return Plan(shut, failure=failure)
    return Plan((*shut, *dropped))


def _shut(survey: Survey, state: UserState) -> Iterator[Step]:
    """Nobody logs in any more, and before all else it is nobody mighty: the operator is about to act as it."""
    last = Attributes(login=False if state.login else None)
    if _has_mighty_hands(survey):
        last = replace(last, **_too_much(state, Attributes()))
    if last != Attributes():
        elevated = not survey.superuser and not _is_administered(survey, state)
        yield Step(AlterUser(state.name, last, elevated or _is_beyond(survey, state)))


def _dropped(survey: Survey, states: list[UserState], name: str, heir: str | None) -> Iterator[Step]:
    for state in states:
        if state.name != name and (stays := _kept(survey, state)):
            # The server would tell of other databases only how much it is.
            raise SqlFailed(f"dropping user {state.name}", None, "; ".join(kept.told(stays)))
        yield from _made_administered(survey, state)
    # Of both, before anything is given away: what a session commits after that would be dropped.
    yield from (Step(EndSessions(state.name)) for state in states)
    for state in states:
        role, owned = state.name, state.owns_in | _owned(survey, state.name)
        heirs: dict[str, str | None] = {}
        # Inside comes first: the maintenance database may be one of those, with an heir of its own.
        for database in sorted(state.stands_in | owned, key=lambda one: (one not in state.stands_inside, one)):
            to = name if role != name else heir
            if to is None and database in owned:
                to = _heir(survey, name, database)
            # The deputy acts as the user already.
            if to is not None and role == name:
                _require_harmless(survey, role, database, to)
            heirs.setdefault(_seen_to(survey, state, database), to)
        yield from (Step(Reassign(place, role, to)) for place, to in heirs.items())
        yield Step(DropUser(role), Change("UserDropped", f"dropped user {role}"))


def _seen_to(survey: Survey, state: UserState, database: str) -> str:
    """Where statements free a database of a role: who has nothing inside is not kept by one that lets nobody in."""
    return database if database in state.stands_inside else survey.maintenance


def _owned(survey: Survey, role: str) -> set[str]:
    return {database.name for database in survey.databases.values() if database.owner == role}


def _heir(survey: Survey, name: str, database: str) -> str:
    state = survey.databases.get(database)
    if state is None:
        # Of who is dropped all databases are looked at: it went, or came, in the middle of the look.
        raise Raced(SqlFailed(f"dropping user {name}", "3D000", f"database {database} was not seen"))
    if not state.owner or state.owner == name:
        raise HeirMissing(name, database, "it owns the database itself")
    return state.owner


def _require_harmless(survey: Survey, name: str, database: str, heir: str) -> None:
    """Views and SECURITY DEFINER functions act with their owner's rights: they must not get a mightier owner."""
    if heir == survey.administrator or is_the_servers(heir) or _mighty_by(survey, heir):
        raise HeirMissing(name, database, f"{heir} has rights over the whole server, which its views would act with")


def _itself(desired: DesiredUser) -> _Role:
    attributes = Attributes(
        login=desired.login,
        inherit=desired.inherit,
        superuser=False,
        create_role=False,
        create_database=desired.create_database,
        replication=desired.replication,
        bypass_row_level_security=desired.bypass_row_level_security,
        connection_limit=desired.connection_limit,
        valid_until=_end(desired.valid_until),
    )
    return _Role(desired.name, attributes, desired.password, desired.claim, desired.adopt)


def _end(declared: datetime | None) -> datetime:
    """As a survey will find it."""
    return FOREVER if declared is None or declared >= LATEST else max(declared, EARLIEST)


def _role(survey: Survey, role: _Role) -> Iterator[Step]:
    state = survey.users.get(role.name)
    if state is None:
        password = role.password if isinstance(role.password, str) else None
        verifier = verifiers.verifier(password) if password is not None else None
        # Those two only a superuser can give, and whoever creates a role is who administers it.
        modest = replace(role.attributes, replication=False, bypass_row_level_security=False)
        made = CreateUser(role.name, modest, verifier, role.claim.text if role.claim else None)
        yield Step(made, Change("UserCreated", f"created user {role.name}"))
        if not survey.superuser:
            yield Step(_administered(survey, role.name, elevated=False))
        if modest != role.attributes:
            more = Attributes(
                replication=role.attributes.replication,
                bypass_row_level_security=role.attributes.bypass_row_level_security,
            )
            yield Step(AlterUser(role.name, more))
        return
    require_ours("user", role.name, state.mark, role.claim, role.adopt)
    ours = role.claim is not None and state.mark == role.claim.text
    _require_modest(state, role, ours)
    if not ours:
        _require_apart(survey, state)
    if _has_mighty_hands(survey) and (surplus := _too_much(state, role.attributes)):
        # First: the operator is about to act as it.
        yield Step(AlterUser(role.name, Attributes(**surplus)), _altered("altered", state, surplus))
        state = replace(state, **surplus)
    yield from _made_administered(survey, state)
    if role.claim is not None and not ours:
        yield Step(MarkUser(role.name, role.claim.text), Change("UserAdopted", f"took over user {role.name}"))
    # The password first: a former one must not open again what is no longer closed.
    yield from _password(survey, state, role)
    yield from _attributes(survey, state, role.attributes)


def _require_modest(state: UserState, role: _Role, ours: bool) -> None:
    """What somebody else made mighty is not taken; what is ours loses the rights again."""
    wanted = role.attributes
    if not ours and (
        state.superuser
        or state.create_role
        or (state.replication and not wanted.replication)
        or (state.bypass_row_level_security and not wanted.bypass_row_level_security)
    ):
        raise InvalidName(
            "username",
            state.name,
            "the server has a role of this name with rights over the whole server"
            " (SUPERUSER, REPLICATION, CREATEROLE or BYPASSRLS); choose another username,"
            " or take these rights away from the role",
        )
    if not ours and (by := state.mighty_by - {state.name}):
        raise InvalidName(
            "username",
            state.name,
            f"the server has a role of this name that may act as {', '.join(sorted(by))}, with rights over the whole"
            " server; choose another username, or take these memberships away from the role",
        )


def _require_apart(survey: Survey, state: UserState) -> None:
    """What a role loses as it is taken, whoever has rights by it loses, too: it may not be the operator's login."""
    given = [one for one in state.members if one.role == survey.administrator != one.grantor]
    if not _has_mighty_hands(survey) and any(one.inherit is not False for one in given):
        raise InvalidName(
            "username",
            state.name,
            f"the server's administrator {survey.administrator} has rights by this role, and would lose them with it;"
            " choose another username, or revoke the membership (since version 16: grant it WITH INHERIT FALSE)",
        )


def _is_beyond(survey: Survey, state: UserState) -> bool:
    """Whether only a superuser may alter a role or drop it, whatever it is that changes."""
    return state.superuser or (state.replication and survey.version[0] < INHERITING)


def _has_mighty_hands(survey: Survey) -> bool:
    return survey.superuser or survey.elevates


def _too_much(state: UserState, wanted: Attributes) -> dict[str, Any]:
    """The rights over the whole server that somebody gave a role."""
    rights = ("superuser", "create_role", "replication", "bypass_row_level_security")
    return {name: False for name in rights if getattr(state, name) and not getattr(wanted, name)}


def _made_administered(survey: Survey, state: UserState) -> Iterator[Step]:
    if not survey.superuser and not _is_administered(survey, state):
        # Who has the right to pass it on, as has who made it since version 16, cannot give that to itself.
        elevated = survey.version[0] < INHERITING or not _administers(survey, state.name)
        yield Step(_administered(survey, state.name, elevated))


def _is_administered(survey: Survey, state: UserState) -> bool:
    held = [membership for membership in state.members if membership.role == survey.administrator]
    if survey.version[0] < INHERITING:
        return bool(held)
    inherits = survey.elevates or any(one.inherit for one in held)
    return inherits and any(one.set_role for one in held) and any(one.admin for one in held)


def _administered(survey: Survey, name: str, elevated: bool) -> GrantRole:
    """The operator may act as who is its own. It inherits nothing, unless it has no other way to be mighty enough."""
    if survey.version[0] < INHERITING:
        return GrantRole(survey.administrator, Membership(name, survey.administrator, admin=elevated), elevated)
    inherit = not survey.elevates
    return GrantRole(
        survey.administrator, Membership(name, survey.administrator, elevated, inherit, set_role=True), elevated
    )


def _attributes(survey: Survey, state: UserState, wanted: Attributes) -> Iterator[Step]:
    there = _there(state)
    names = [one.name for one in fields(wanted) if getattr(wanted, one.name) not in (None, getattr(there, one.name))]
    if names:
        change = _altered("unlocked" if _opens_more(there, wanted) else "altered", state, names)
        changed = Attributes(**{name: getattr(wanted, name) for name in names})
        yield Step(AlterUser(state.name, changed, _is_beyond(survey, state)), change)


def _altered(word: Literal["altered", "unlocked"], state: UserState, names: Iterable[str]) -> Change:
    message = f"{word} user {state.name} ({', '.join(names).replace('_', ' ')})"
    return Change(f"User{word.capitalize()}", message)


def _there(state: UserState) -> Attributes:
    return Attributes(
        login=state.login,
        inherit=state.inherit,
        superuser=state.superuser,
        create_role=state.create_role,
        create_database=state.create_database,
        replication=state.replication,
        bypass_row_level_security=state.bypass_row_level_security,
        connection_limit=state.connection_limit,
        valid_until=state.valid_until or FOREVER,
    )


def _opens_more(there: Attributes, wanted: Attributes) -> bool:
    return (
        (wanted.login and not there.login)
        or (wanted.valid_until or FOREVER) > (there.valid_until or FOREVER)
        or (there.connection_limit == 0 and wanted.connection_limit != 0)
    ) is True


def _password(survey: Survey, state: UserState, role: _Role) -> Iterator[Step]:
    password = role.password
    if password is NoPassword.UNCHANGED:
        return
    if isinstance(password, NoPassword):
        # One that nobody can see counts where its end, or what else kept it from opening, goes.
        unseen = not survey.verifiers_readable and _opens_more(_there(state), role.attributes)
        if unseen or (survey.verifiers_readable and state.verifier is not None):
            remove = SetVerifier(state.name, None, elevated=_is_beyond(survey, state))
            yield Step(remove, Change("PasswordRemoved", f"{state.name} has no password now"))
        return
    right = (
        verifiers.opens(password, state.verifier)
        if survey.verifiers_readable
        else survey.opened.get(state.name, True)
    )
    if not right:
        change = Change("PasswordReset", f"reset the password of user {state.name}")
        verifier = verifiers.verifier(password)
        yield Step(SetVerifier(state.name, verifier, elevated=_is_beyond(survey, state)), change)


def _deputy(survey: Survey, desired: DesiredUser) -> Plan:
    name = deputy_name(desired.name)
    state = survey.users.get(name)
    if desired.second is None:
        if state is None or desired.claim is None or state.mark != desired.claim.text:
            return Plan()
        steps = (*_shut(survey, state), *_made_administered(survey, state), Step(EndSessions(name)))
        stays = _kept(survey, state)
        steps += tuple(_gathered(survey, state, desired.name, state.stands_in - stays.keys()))
        if stays:
            return Plan(steps, kept.told(stays))
        return Plan((*steps, Step(DropUser(name), Change("UserDropped", f"dropped user {name}"))))
    attributes = Attributes(
        login=desired.login,
        inherit=True,
        superuser=False,
        create_role=False,
        create_database=False,
        replication=False,
        bypass_row_level_security=False,
        connection_limit=desired.connection_limit,
        # Its own: where it is the newer one, the user's ends with the overlap.
        valid_until=_end(desired.second.valid_until),
    )
    role = _Role(name, attributes, desired.second.password, desired.claim, desired.adopt)
    plan = Plan(tuple(_role(survey, role))) + _as_user(survey, state or UserState(name), desired)
    if state is None or f"role={desired.name}" not in state.settings:
        plan += Plan((Step(SetRoleSetting(name, desired.name)),))
    if state is None:
        return plan
    stays = _kept(survey, state)
    told = kept.told(stays) if desired.exact else ()
    return plan + Plan(tuple(_gathered(survey, state, desired.name, state.stands_in - stays.keys())), told)


def _as_user(survey: Survey, state: UserState, desired: DesiredUser) -> Plan:
    """The deputy is a member of its user, who may not be there yet, and by itself of nothing else."""
    inherit, act = (True, True) if survey.version[0] >= INHERITING else (None, None)
    wanted = DesiredMembership(desired.name, False, inherit, act)
    own = [one for one in state.memberships if one.role == desired.name]
    fitting = [one for one in own if _fits(survey, one, wanted)]
    counted = state.memberships if desired.exact else own
    plan, stays = _put_out(survey, state, [one for one in counted if one not in fitting])
    if not fitting and desired.name not in stays:
        plan += Plan(
            (Step(GrantRole(state.name, Membership(desired.name, survey.administrator, False, inherit, act))),)
        )
    return plan


def _kept(survey: Survey, state: UserState) -> Mapping[str, tuple[str, ...]]:
    """Where the deputy has only what strangers granted to it, and in words what."""
    if _has_mighty_hands(survey):
        return {}
    return kept.of_strangers(survey, state.name, state.stands_in - state.owns_in - _owned(survey, state.name))


def _gathered(survey: Survey, state: UserState, user: str, databases: Iterable[str]) -> Iterator[Step]:
    """What the deputy owns nevertheless, made after SET ROLE NONE, becomes the user's."""
    for database in sorted(databases):
        change = Change("OwnerRestored", f"gave what {state.name} had in database {database} to {user}")
        yield Step(Reassign(_seen_to(survey, state, database), state.name, user), change, alone=True)


def _memberships(survey: Survey, desired: DesiredUser) -> Plan:
    state = survey.users.get(desired.name) or UserState(desired.name)
    declared = {want.role: want for want in desired.roles}
    # What else is declared is done, an end above all.
    beyond = {name for name, want in declared.items() if _is_unknown(survey, want)}
    mighty = {name: by for name in declared if (by := _mighty_by(survey, name))}
    wanted = {name: _explicit(survey, desired, declared[name]) for name in declared.keys() - beyond - mighty.keys()}
    fitting = [
        one
        for one in state.memberships
        if one.role in wanted and one.grantor != desired.name and _fits(survey, one, wanted[one.role])
    ]
    # One that fits not quite is revoked too: a second one beside it would leave what it has too much.
    unfitting = [
        one
        for one in state.memberships
        if one not in fitting and one.role not in beyond and (desired.exact or one.role in declared)
    ]
    put_out, stays = _put_out(survey, state, unfitting)
    missing = [f"role {name} is not there yet" for name in declared if name not in survey.users]
    missing += [
        f"PostgreSQL {survey.version[0]} knows neither inherit nor set of the membership in {name}"
        for name in sorted(beyond)
    ]
    for name, by in sorted(mighty.items()):
        others = "" if name in by else f" by {', '.join(sorted(by))}"
        missing.append(f"role {name} has rights over the whole server{others}: revoke them, or leave it out")
    there = {one.role for one in fitting} | stays
    lacking = [wanted[name] for name in declared if name in wanted.keys() & survey.users.keys() - there]
    granted = Plan(tuple(_granted(survey, desired.name, want) for want in lacking))
    return Plan(missing=tuple(missing)) + put_out + granted


def _put_out(survey: Survey, state: UserState, ones: Iterable[Membership]) -> tuple[Plan, set[str]]:
    """A user loses memberships; and the roles that it stays in, as it let others in by them, who would go first."""
    # What it gave itself first: that hangs on what it was given.
    leaving = sorted(ones, key=lambda one: (one.grantor != state.name, one.role, one.grantor))
    stays = {one.role for one in leaving if one.admin and _let_in(state, one.role)}
    missing = [
        f"membership in {name} stays with {state.name}, who let {', '.join(_let_in(state, name))} in:"
        " put them out first"
        for name in sorted(stays)
    ]
    goes = [one for one in leaving if not (one.admin and one.role in stays)]
    return Plan(tuple(_revoked(survey, state.name, one) for one in goes), tuple(missing)), stays


def _is_unknown(survey: Survey, wanted: DesiredMembership) -> bool:
    """Whether the server has no such memberships."""
    return survey.version[0] < INHERITING and (wanted.inherit is not None or wanted.set_role is not None)


def _mighty_by(survey: Survey, role: str) -> frozenset[str]:
    """As whom a role has rights over the whole server: itself, or who has let it in."""
    return survey.users[role].mighty_by if role in survey.users else frozenset()


def _let_in(state: UserState, role: str) -> list[str]:
    return sorted(member for admitted, member in state.admitted if admitted == role and member != state.name)


def _explicit(survey: Survey, desired: DesiredUser, wanted: DesiredMembership) -> DesiredMembership:
    """With what a server takes where nothing is said, and leaves as it is when the user's own `inherit` changes."""
    if survey.version[0] >= INHERITING:
        inherit = desired.inherit if wanted.inherit is None else wanted.inherit
        return replace(wanted, inherit=inherit, set_role=wanted.set_role is not False)
    return wanted


def _revoked(survey: Survey, name: str, one: Membership) -> Step:
    change = Change("MembershipRevoked", f"revoked membership in {one.role} from {name}")
    ordinary = survey.version[0] < INHERITING or one.grantor == survey.administrator
    revoke = RevokeRole(name, one.role, one.grantor, elevated=not ordinary)
    return Step(revoke, change, alone=True, takes=True)


def _granted(survey: Survey, name: str, wanted: DesiredMembership) -> Step:
    elevated = not _administers(survey, wanted.role)
    membership = Membership(wanted.role, survey.administrator, wanted.admin, wanted.inherit, wanted.set_role)
    change = Change("MembershipGranted", f"made {name} a member of {wanted.role}")
    return Step(GrantRole(name, membership, elevated), change, alone=True)


def _administers(survey: Survey, role: str) -> bool:
    """Whether the operator may pass on membership in a role. Predefined roles are a superuser's to give."""
    if survey.superuser or survey.version[0] < INHERITING:
        return True
    state = survey.users.get(role)
    return state is not None and any(one.role == survey.administrator and one.admin for one in state.members)


def _fits(survey: Survey, membership: Membership, wanted: DesiredMembership) -> bool:
    options = survey.version[0] < INHERITING or (membership.inherit, membership.set_role) == (
        wanted.inherit,
        wanted.set_role,
    )
    return options and membership.admin == wanted.admin
