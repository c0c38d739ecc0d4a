"""Whether something that is on a server already may be taken, by the mark that it bears."""

from __future__ import annotations

from collections.abc import Iterable

from .desired import EMPTY_TEMPLATE, Claim, DesiredDatabase, DesiredUser
from .errors import AlreadyExists, Claimed, NotPermitted
from .survey import DatabaseState, Survey, UserState


def require_ours(what: str, name: str, mark: str | None, claim: Claim | None, adopt: bool) -> None:
    """Refuse to take what is somebody else's.

    Args:
        what: the word for it in messages.
        mark: what stands on the server at the thing.
        claim: whose it is to be; `None` takes whatever is found.
        adopt: takes what bears no mark, or that of another Kubernetes cluster (after a move, or a restored dump).

    Raises `AlreadyExists`, or `Claimed` where another object of this Kubernetes cluster has it.
    """
    if claim is None or mark == claim.text:
        return
    owner = Claim.read(mark)
    if owner is not None and owner.cluster == claim.cluster:
        raise Claimed(what, name, owner)
    if not adopt:
        raise AlreadyExists(what, name)


def is_ours(mark: str | None, claim: Claim | None) -> bool:
    """Whether something may be dropped: it bears this claim's mark, or no mark counts."""
    return claim is None or mark == claim.text


def retained(state: DatabaseState | UserState | None, claim: Claim) -> str:
    """Why what is there is not dropped though its object goes; empty where it is dropped, or is not there."""
    if state is None or is_ours(state.mark, claim) or (isinstance(state, DatabaseState) and not state.exists):
        return ""
    return "it bears another mark than this object's, or none"


def require_permitted(survey: Survey, desired: DesiredDatabase | DesiredUser) -> None:
    """Refuse a guest to refer to what is there and was not made for its namespace.

    By the marks on the server: what an object of the namespace only names may be somebody else's.

    Raises `NotPermitted`.
    """
    if not desired.guest:
        return
    if isinstance(desired, DesiredDatabase):
        named = {desired.owner, *(schema.owner for schema in desired.schemas if schema.owner)}
        made, template = survey.databases.get(desired.name), survey.databases.get(desired.template)
        copies = desired.template != EMPTY_TEMPLATE and (made is None or not made.exists)
        # A copy of it is all that is in it.
        if copies and template is not None and not template.is_template:
            _require_kin_of(template, desired.claim)
    else:
        named = {*(role.role for role in desired.roles), *(c for grant in desired.grants for c in grant.created_by)}
        for name in sorted({grant.database for grant in desired.grants}):
            if (state := survey.databases.get(name)) is not None:
                _require_kin_of(state, desired.claim)
    require_kin(survey, named, desired.claim)


def _require_kin_of(database: DatabaseState, claim: Claim | None) -> None:
    # What is left of one that is gone is nobody's: it may be revoked.
    if database.exists and not is_kin(database.mark, claim):
        raise NotPermitted("database", database.name)


def require_kin(survey: Survey, roles: Iterable[str], claim: Claim | None) -> None:
    """Refuse roles that are there and were not made for the claim's namespace. Raises `NotPermitted`."""
    for name in sorted(roles):
        state = survey.users.get(name)
        if state is not None and not is_kin(state.mark, claim):
            raise NotPermitted("role", name)


def is_kin(mark: str | None, claim: Claim | None) -> bool:
    """Whether what bears this mark was made for the namespace of the claim."""
    owner = Claim.read(mark)
    if owner is None or claim is None:
        return False
    return (owner.cluster, owner.namespace) == (claim.cluster, claim.namespace)
