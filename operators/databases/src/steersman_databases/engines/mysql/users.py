"""The plan for an account of MySQL or MariaDB, `name`@`%`: its passwords, its limits, its grants."""

from __future__ import annotations

from collections.abc import Iterator

from ..actions import AlterUser, Attributes, CreateUser, DiscardSecond, DropUser, MarkUser, SetVerifier
from ..claims import is_ours, require_ours
from ..desired import Claim, DesiredUser, NoPassword
from ..errors import InvalidName, NotSupported, SqlFailed
from ..granting import plan_grants
from ..plan import Change, Plan, Step
from ..survey import Survey, UserState
from . import verifiers
from .grants import GRANTING


def plan_user(survey: Survey, desired: DesiredUser) -> Plan:
    """See `Contents.plan_user`."""
    if desired.second is not None and survey.product == "MariaDB":
        raise NotSupported("rotation", "MariaDB accounts have one password; change it by the Secret instead")
    return Plan(tuple(_account(survey, desired))) + plan_grants(survey, desired, GRANTING)


def plan_drop_user(survey: Survey, name: str, claim: Claim | None) -> Plan:
    """See `Contents.plan_drop_user`. What it made stays: nothing has an owner here."""
    state = survey.users.get(name)
    if state is None or not is_ours(state.mark, claim):
        return Plan()
    return Plan((Step(DropUser(name), Change("UserDropped", f"dropped user {name}")),))


def new_verifier(survey: Survey, password: str) -> str:
    """As this server keeps passwords of new accounts."""
    return verifiers.native(password) if survey.product == "MariaDB" else verifiers.sha2(password)


def _account(survey: Survey, desired: DesiredUser) -> Iterator[Step]:
    state = survey.users.get(desired.name)
    _require_alone(survey, desired.name)
    attributes = Attributes(locked=not desired.login, connection_limit=desired.connection_limit)
    if state is None:
        # The mark first: it counts only where the account is there, and an account without would be nobody's.
        if desired.claim is not None:
            yield Step(MarkUser(desired.name, desired.claim.text))
        password = desired.password if isinstance(desired.password, str) else None
        verifier = new_verifier(survey, password) if password is not None else None
        create = CreateUser(desired.name, attributes, verifier)
        yield Step(create, Change("UserCreated", f"created user {desired.name}"))
        state = UserState(desired.name, verifier=verifier)
        yield from _second(survey, state, desired)
        return
    require_ours("user", desired.name, state.mark, desired.claim, desired.adopt)
    ours = desired.claim is not None and state.mark == desired.claim.text
    if state.superuser and not (ours and desired.exact):
        raise _mighty(desired.name)
    if desired.claim is not None and not ours:
        yield Step(
            MarkUser(desired.name, desired.claim.text), Change("UserAdopted", f"took over user {desired.name}")
        )
    if state.locked != attributes.locked:
        word = "unlocked" if state.locked else "locked"
        change = Change(f"User{word.capitalize()}", f"{word} user {desired.name}")
        yield Step(AlterUser(desired.name, Attributes(locked=attributes.locked)), change)
    if state.connection_limit != desired.connection_limit:
        change = Change("UserAltered", f"altered user {desired.name} (connection limit)")
        yield Step(AlterUser(desired.name, Attributes(connection_limit=desired.connection_limit)), change)
    yield from _second(survey, state, desired)


def _require_alone(survey: Survey, name: str) -> None:
    """An account for a narrower host comes first for who connects from there, whatever stands in `name`@`%`."""
    if name in survey.narrower:
        if survey.narrower[name]:
            raise _mighty(name)
        raise SqlFailed(
            f"looking for user {name}",
            None,
            "another account of that name, for a narrower host, comes first where it matches: drop it",
        )


def _mighty(name: str) -> InvalidName:
    return InvalidName(
        "username",
        name,
        "the server has a user of this name with rights over the whole server;"
        " choose another username, or revoke these rights",
    )


def _second(survey: Survey, state: UserState, desired: DesiredUser) -> Iterator[Step]:
    """The password that opens, and the former one beside it for as long as it is to."""
    second = desired.second.password if desired.second is not None else None
    retained = state.second_verifier
    reset = Change("PasswordReset", f"reset the password of user {state.name}")
    if isinstance(desired.password, str) and not verifiers.opens(desired.password, state.verifier):
        if isinstance(second, str):
            if not verifiers.opens(second, state.verifier):
                yield Step(SetVerifier(state.name, new_verifier(survey, second)))
            yield Step(SetVerifier(state.name, new_verifier(survey, desired.password), retain=True), reset)
            return
        yield Step(SetVerifier(state.name, new_verifier(survey, desired.password)), reset)
    elif isinstance(second, str) and isinstance(desired.password, str) and not verifiers.opens(second, retained):
        yield Step(SetVerifier(state.name, new_verifier(survey, second)))
        yield Step(SetVerifier(state.name, new_verifier(survey, desired.password), retain=True), reset)
        return
    if retained is not None and (desired.second is None or second is NoPassword.NONE):
        change = Change("PasswordRemoved", f"the former password of user {state.name} is gone")
        yield Step(DiscardSecond(state.name), change)
