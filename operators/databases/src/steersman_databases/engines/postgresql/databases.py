"""The plan for a database of PostgreSQL: that it is there, whose it is, and that nobody else may connect to it.

A new database belongs to the operator, is closed and has a connection limit that nobody else chooses, until its mark,
its owner and its opening are set in one go: whatever cuts in between, a half-made database is recognized, and one
that somebody closed is not taken for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..actions import (
    HALF_MADE,
    AlterDatabase,
    CreateDatabase,
    DropDatabase,
    FinishDatabase,
    GiveBack,
    Grant,
    MarkDatabase,
    Revoke,
)
from ..claims import is_ours, require_ours
from ..desired import EMPTY_TEMPLATE, Claim, DesiredDatabase, ObjectKind
from ..errors import ImmutableOnServer, InvalidName, OwnerMissing, SqlFailed
from ..plan import Change, Plan, Step
from ..survey import PUBLIC, DatabaseState, Privilege, SecuredObject, Survey
from .grants import PRIVILEGES
from .inside import plan_inside

HALF_DROPPED = -2
"""The connection limit of a database whose DROP was cut off."""

_EVERYTHING = PRIVILEGES[ObjectKind.DATABASE]


def plan_database(survey: Survey, desired: DesiredDatabase) -> Plan:
    """See `Contents.plan_database`."""
    state = survey.databases.get(desired.name)
    half_made = state is not None and _is_half_made(survey, state)
    if state is not None:
        if not half_made:
            require_ours("database", state.name, state.mark, desired.claim, desired.adopt)
        _require_as_made(state, desired)
    # Last: for a database that cannot be had no owner is to be made.
    if desired.owner not in survey.users:
        raise OwnerMissing(desired.owner)
    if state is None:
        return Plan((Step(_created(desired)), *_finished(survey, desired)), again=True)
    if half_made:
        return Plan(tuple(_finished(survey, desired)), again=True)
    outside = tuple(_outside(survey, state, desired))
    # What is wrong inside is seen once one gets in, and belongs to the right owner.
    if desired.name not in survey.inside or state.owner != desired.owner:
        if not outside and (why := survey.unseen.get(desired.name)) is not None:
            raise SqlFailed(f"looking inside database {desired.name}", None, why)
        return Plan(outside, again=bool(outside))
    return Plan(outside) + plan_inside(survey, survey.inside[desired.name], desired)


def plan_drop_database(survey: Survey, name: str, claim: Claim | None) -> Plan:
    """See `Contents.plan_drop_database`."""
    state = survey.databases.get(name)
    # A half-made one bears no mark yet, and nobody has ever been in it.
    if state is None or not (is_ours(state.mark, claim) or _is_half_made(survey, state)):
        return Plan()
    # The server drops no template.
    freed = (Step(AlterDatabase(name, state.owner, is_template=False)),) if state.is_template else ()
    return Plan((*freed, Step(DropDatabase(name), Change("DatabaseDropped", f"dropped database {name}"))))


def _created(desired: DesiredDatabase) -> CreateDatabase:
    letters = desired.character_type
    if letters is None and desired.template == EMPTY_TEMPLATE:
        # The server would take its own; a copy must have its template's.
        letters = desired.collation
    return CreateDatabase(desired.name, desired.encoding or "UTF8", desired.collation, letters, desired.template)


def _finished(survey: Survey, desired: DesiredDatabase) -> Iterator[Step]:
    mark = desired.claim.text if desired.claim else None
    finish = FinishDatabase(desired.name, desired.owner, desired.connection_limit, mark)
    yield Step(finish, Change("DatabaseCreated", f"created database {desired.name}"))
    yield from _privileges(survey, _fresh(desired), settled=False)


def _fresh(desired: DesiredDatabase) -> DatabaseState:
    """What PostgreSQL gives to everybody on a new database."""
    on = SecuredObject(ObjectKind.DATABASE, desired.name)
    own = {Privilege(desired.owner, on, privilege, desired.owner) for privilege in _EVERYTHING}
    public = {Privilege(PUBLIC, on, privilege, desired.owner) for privilege in ("CONNECT", "TEMPORARY")}
    return DatabaseState(desired.name, desired.owner, privileges=frozenset(own | public))


def _outside(survey: Survey, state: DatabaseState, desired: DesiredDatabase) -> Iterator[Step]:
    if state.is_template:
        change = Change("DatabaseAltered", f"database {state.name} is no template any more")
        yield Step(AlterDatabase(state.name, state.owner, is_template=False), change, alone=True)
    limit = desired.connection_limit if state.connection_limit != desired.connection_limit else None
    if limit is not None or not state.allows_connections:
        opens = state.connection_limit == 0 or not state.allows_connections
        reason, word = ("DatabaseOpened", "opened") if opens else ("DatabaseAltered", "altered")
        message = f"{word} database {state.name} to connections" if opens else f"set {state.name}'s connection limit"
        alter = AlterDatabase(state.name, state.owner, None, limit, None if state.allows_connections else True)
        yield Step(alter, Change(reason, message))
    settled = state.owner == desired.owner
    if not settled:
        # Somebody who gave the database away, and no more, left its contents to the declared owner. One who has none
        # is new: dropped, so that they went to the present owner, or declared now, in the place of the present one.
        change = Change("OwnerRestored", f"gave database {state.name} back to {desired.owner} from {state.owner}")
        if state.allows_connections and state.name not in survey.users[desired.owner].owns_in:
            yield Step(GiveBack(state.name, state.owner, desired.owner), change)
        else:
            yield Step(AlterDatabase(state.name, state.owner, desired.owner), change)
        state = _inherited(state, desired.owner)
    if desired.claim is not None and state.mark != desired.claim.text:
        change = Change("DatabaseAdopted", f"took over database {state.name}")
        yield Step(MarkDatabase(state.name, desired.claim.text, desired.owner), change)
    yield from _privileges(survey, state, settled)


def _is_half_made(survey: Survey, state: DatabaseState) -> bool:
    unfinished = not state.allows_connections and state.connection_limit == HALF_MADE
    return unfinished and state.owner == survey.administrator and state.mark is None


def _require_as_made(state: DatabaseState, desired: DesiredDatabase) -> None:
    # Of ours its owner made one, whom that would put beyond all healing.
    if state.is_template and (desired.claim is None or state.mark != desired.claim.text):
        raise InvalidName("databaseName", state.name, "it is a template of this server; choose another name")
    if state.connection_limit == HALF_DROPPED:
        raise SqlFailed(
            "looking for the database",
            None,
            "somebody began to drop it and was interrupted, and PostgreSQL opens it no more; "
            "finish with DROP DATABASE, then it is created anew, empty",
        )
    for field, found, wanted in (
        ("encoding", state.encoding, desired.encoding),
        ("collation", state.collation, desired.collation),
        ("characterType", state.character_type, desired.character_type),
    ):
        if wanted is not None and _plain(found) != _plain(wanted):
            raise ImmutableOnServer(field, found, wanted)


_ALSO_CALLED = {
    "posix": "c",
    "unicode": "utf8",
    "alt": "win866",
    "win": "win1251",
    "koi8": "koi8r",
    **dict.fromkeys(("abc", "tcvn", "tcvn5712", "vscii"), "win1258"),
    **dict.fromkeys(("mskanji", "shiftjis", "win932", "windows932"), "sjis"),
    **dict.fromkeys(("win936", "windows936"), "gbk"),
    **dict.fromkeys(("win949", "windows949"), "uhc"),
    **dict.fromkeys(("win950", "windows950"), "big5"),
    **{f"iso8859{part}": f"latin{n}" for n, part in enumerate((1, 2, 3, 4, 9, 10, 13, 14, 15, 16), 1)},
    **{f"windows{page}": f"win{page}" for page in (866, 874, *range(1250, 1259))},
}
"""What a server takes and shows by another name. Source: src/common/encnames.c; and libc, for C."""


def _plain(name: str) -> str:
    """`UTF8` and `utf-8` are one, `en_US.utf8` and `en_US.UTF-8` as well."""
    plain = "".join(character for character in name.lower() if character.isalnum())
    return _ALSO_CALLED.get(plain, plain)


def _inherited(state: DatabaseState, owner: str) -> DatabaseState:
    """ALTER DATABASE … OWNER rewrites what the former owner held and granted to be the new one's."""

    def now(role: str) -> str:
        return owner if role == state.owner else role

    privileges = frozenset(
        Privilege(now(one.grantee), one.on, one.privilege, now(one.grantor), one.grantable)
        for one in state.privileges
    )
    return DatabaseState(state.name, owner, mark=state.mark, privileges=privileges)


def _privileges(survey: Survey, state: DatabaseState, settled: bool) -> Iterator[Step]:
    """`settled`: it is there and its owner's already, so that nothing has to be done before."""
    on = SecuredObject(ObjectKind.DATABASE, state.name)
    own = {one.privilege for one in state.privileges if one.grantee == state.owner}
    if lacking := _EVERYTHING - own:
        change = Change("GrantsRestored", f"granted ALL on database {state.name} to {state.owner}")
        yield Step(Grant(state.owner, on, tuple(sorted(lacking)), state.owner), change)
    if not survey.superuser and state.owner != survey.administrator:
        mine = {one.privilege for one in state.privileges if one.grantee == survey.administrator}
        if "CONNECT" not in mine:
            yield Step(Grant(survey.administrator, on, ("CONNECT",), state.owner))
    public: dict[str, set[str]] = {}
    for one in state.privileges:
        if one.grantee == PUBLIC:
            public.setdefault(one.grantor, set()).add(one.privilege)
    for grantor, privileges in sorted(public.items()):
        change = Change("PublicAccessRevoked", f"closed database {state.name} to other users")
        revoke = Revoke(PUBLIC, on, tuple(sorted(privileges)), grantor)
        yield Step(revoke, change, alone=settled, takes=settled)
