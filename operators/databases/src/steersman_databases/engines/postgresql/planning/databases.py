"""Plan for a PostgreSQL database: existence, owner, and no access for others.

A new database belongs to the operator, is closed, and has a reserved connection limit. One transaction sets its
mark and owner and opens it. So an incomplete database is recognised after any interruption, and a database that a
user closed is not confused with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from steersman_databases.engines.errors import ImmutableProperty, InvalidName, OwnerMissing, SqlFailed
from steersman_databases.engines.sql.desired import EMPTY_TEMPLATE, DesiredDatabase, OwnershipMark, SecurableKind
from steersman_databases.engines.sql.inspection import PUBLIC, DatabaseState, HeldPrivilege, Inspection, SecuredObject
from steersman_databases.engines.sql.ownership_marks import has_mark, is_marked_by, needs_mark, require_adoptable
from steersman_databases.engines.sql.sql_actions import (
    INCOMPLETE_MARKER,
    AlterDatabase,
    CreateDatabase,
    DropDatabase,
    FinishDatabase,
    GrantPrivileges,
    RestoreOwnership,
    RevokePrivileges,
    TagDatabase,
)
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan, SqlStep

from .grants import PRIVILEGES
from .schemas_extensions import plan_database_contents

INVALID_DATABASE_LIMIT = -2
"""Connection limit of a database after an interrupted DROP."""

_ALL_DATABASE_PRIVILEGES = PRIVILEGES[SecurableKind.DATABASE]


def plan_database(inspection: Inspection, desired: DesiredDatabase) -> SqlPlan:
    """See `SqlEngine.plan_database`."""
    state = inspection.databases.get(desired.name)
    incomplete = state is not None and _is_incomplete(inspection, state)
    if state is not None:
        if not incomplete:
            require_adoptable("database", state.name, state.mark, desired.mark, desired.adopt)
        _require_immutable_match(state, desired)
    # Last, because no owner should be created for an impossible database.
    if desired.owner not in inspection.users:
        raise OwnerMissing(desired.owner)
    if state is None:
        return SqlPlan((SqlStep(_create(desired)), *_finish(inspection, desired)), inspect_again=True)
    if incomplete:
        return SqlPlan(tuple(_finish(inspection, desired)), inspect_again=True)
    properties = tuple(_database_properties(inspection, state, desired))
    # Problems inside appear with the next inspection, after the database has the right owner.
    if desired.name not in inspection.contents or state.owner != desired.owner:
        if not properties and (reason := inspection.uninspected.get(desired.name)) is not None:
            raise SqlFailed(f"inspecting database {desired.name}", None, reason)
        return SqlPlan(properties, inspect_again=bool(properties))
    return SqlPlan(properties) + plan_database_contents(inspection, inspection.contents[desired.name], desired)


def plan_drop_database(inspection: Inspection, name: str, mark: OwnershipMark | None) -> SqlPlan:
    """See `SqlEngine.plan_drop_database`."""
    state = inspection.databases.get(name)
    # An incomplete one has no mark yet, and was never open to any user.
    if state is None or not (is_marked_by(state.mark, mark) or _is_incomplete(inspection, state)):
        return SqlPlan()
    # The server does not drop templates.
    invalid = (SqlStep(AlterDatabase(name, state.owner, is_template=False)),) if state.is_template else ()
    return SqlPlan((*invalid, SqlStep(DropDatabase(name), SqlChange("DatabaseDropped", f"dropped database {name}"))))


def _create(desired: DesiredDatabase) -> CreateDatabase:
    encoding, collation, character_type = desired.encoding or "UTF8", desired.collation, desired.character_type
    if desired.locale is not None and collation is None and _normalized(encoding) != "utf8":
        # The provider determines the order. The server's own locale may not fit the encoding, and C does.
        collation = "C"
    if character_type is None and desired.template == EMPTY_TEMPLATE:
        # The default would be the server's own. A copy must have its template's.
        character_type = collation
    return CreateDatabase(
        desired.name,
        encoding,
        collation,
        character_type,
        desired.template,
        desired.locale_provider,
        desired.locale,
    )


def _finish(inspection: Inspection, desired: DesiredDatabase) -> Iterator[SqlStep]:
    mark = desired.mark.text if desired.mark else None
    finish = FinishDatabase(desired.name, desired.owner, desired.connection_limit, mark)
    yield SqlStep(finish, SqlChange("DatabaseCreated", f"created database {desired.name}"))
    yield from _privileges(inspection, _default_state(desired), is_settled=False)


def _default_state(desired: DesiredDatabase) -> DatabaseState:
    """Return PostgreSQL's default privileges on a new database."""
    on = SecuredObject(SecurableKind.DATABASE, desired.name)
    own = {HeldPrivilege(desired.owner, on, privilege, desired.owner) for privilege in _ALL_DATABASE_PRIVILEGES}
    public = {HeldPrivilege(PUBLIC, on, privilege, desired.owner) for privilege in ("CONNECT", "TEMPORARY")}
    return DatabaseState(desired.name, desired.owner, privileges=frozenset(own | public))


def _database_properties(inspection: Inspection, state: DatabaseState, desired: DesiredDatabase) -> Iterator[SqlStep]:
    if state.is_template:
        change = SqlChange("DatabaseAltered", f"database {state.name} is no longer a template")
        yield SqlStep(AlterDatabase(state.name, state.owner, is_template=False), change, independent=True)
    limit = desired.connection_limit if state.connection_limit != desired.connection_limit else None
    if limit is not None or not state.allows_connections:
        allow_connections = state.connection_limit == 0 or not state.allows_connections
        reason, verb = ("DatabaseOpened", "opened") if allow_connections else ("DatabaseAltered", "altered")
        message = (
            f"{verb} database {state.name} to connections"
            if allow_connections
            else f"set {state.name}'s connection limit"
        )
        alter = AlterDatabase(state.name, state.owner, None, limit, None if state.allows_connections else True)
        yield SqlStep(alter, SqlChange(reason, message))
    is_settled = state.owner == desired.owner
    if not is_settled:
        # If only the owner of the database changed, its contents still belong to the declared owner. If this owner
        # owns nothing in it, it is new: either recreated after a drop, which gave its objects to the present owner,
        # or declared now instead of the present owner.
        change = SqlChange(
            "OwnerRestored", f"changed the owner of database {state.name} from {state.owner} back to {desired.owner}"
        )
        if state.allows_connections and state.name not in inspection.users[desired.owner].owns_in:
            yield SqlStep(RestoreOwnership(state.name, state.owner, desired.owner), change)
        else:
            yield SqlStep(AlterDatabase(state.name, state.owner, desired.owner), change)
        state = _after_owner_change(state, desired.owner)
    if desired.mark is not None and needs_mark(state.mark, desired.mark):
        is_ours = has_mark(state.mark, desired.mark)
        change = None if is_ours else SqlChange("DatabaseAdopted", f"adopted database {state.name}")
        yield SqlStep(TagDatabase(state.name, desired.mark.text, desired.owner), change)
    yield from _privileges(inspection, state, is_settled)


def _is_incomplete(inspection: Inspection, state: DatabaseState) -> bool:
    incomplete = not state.allows_connections and state.connection_limit == INCOMPLETE_MARKER
    return incomplete and state.owner == inspection.administrator and state.mark is None


def _require_immutable_match(state: DatabaseState, desired: DesiredDatabase) -> None:
    # An owner may have made its own database a template, which the operator reverts.
    if state.is_template and not has_mark(state.mark, desired.mark):
        raise InvalidName("databaseName", state.name, "it is a template of this server: choose another name")
    if state.connection_limit == INVALID_DATABASE_LIMIT:
        raise SqlFailed(
            "searching for the database",
            None,
            "an earlier DROP DATABASE was interrupted, and PostgreSQL does not open it any more. "
            "Finish it by DROP DATABASE: then an empty database is created",
        )
    for field, found, expected in (
        ("encoding", state.encoding, desired.encoding),
        ("collation", state.collation, desired.collation),
        ("characterType", state.character_type, desired.character_type),
        ("localeProvider", state.locale_provider, desired.locale_provider),
    ):
        if expected is not None and _normalized(found) != _normalized(expected):
            raise ImmutableProperty(field, found, expected)


_ENCODING_ALIASES = {
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
"""Names that a server accepts and shows under another name.

Source: src/common/encnames.c; and libc, for C.
"""


def _normalized(name: str) -> str:
    """Return a normal form: `UTF8` equals `utf-8`, and `en_US.utf8` equals `en_US.UTF-8`."""
    plain = "".join(character for character in name.lower() if character.isalnum())
    return _ENCODING_ALIASES.get(plain, plain)


def _after_owner_change(state: DatabaseState, owner: str) -> DatabaseState:
    """Return the state after ALTER DATABASE … OWNER.

    The command transfers privileges and grants of the previous owner to the new one.
    """

    def new_grantor(role: str) -> str:
        return owner if role == state.owner else role

    privileges = frozenset(
        HeldPrivilege(new_grantor(one.grantee), one.target, one.privilege, new_grantor(one.grantor), one.grantable)
        for one in state.privileges
    )
    return DatabaseState(state.name, owner, mark=state.mark, privileges=privileges)


def _privileges(inspection: Inspection, state: DatabaseState, is_settled: bool) -> Iterator[SqlStep]:
    """Yield the steps for privileges.

    Args:
        is_settled: the database exists and has the right owner, so that no step must come first.
    """
    target = SecuredObject(SecurableKind.DATABASE, state.name)
    own = {one.privilege for one in state.privileges if one.grantee == state.owner}
    if missing := _ALL_DATABASE_PRIVILEGES - own:
        change = SqlChange("GrantsRestored", f"granted ALL on database {state.name} to {state.owner}")
        yield SqlStep(GrantPrivileges(state.owner, target, tuple(sorted(missing)), state.owner), change)
    if not inspection.superuser and state.owner != inspection.administrator:
        own_privileges = {one.privilege for one in state.privileges if one.grantee == inspection.administrator}
        if "CONNECT" not in own_privileges:
            yield SqlStep(GrantPrivileges(inspection.administrator, target, ("CONNECT",), state.owner))
    public: dict[str, set[str]] = {}
    for one in state.privileges:
        if one.grantee == PUBLIC:
            public.setdefault(one.grantor, set()).add(one.privilege)
    for grantor, privileges in sorted(public.items()):
        change = SqlChange("PublicAccessRevoked", f"closed database {state.name} to other users")
        revoke = RevokePrivileges(PUBLIC, target, tuple(sorted(privileges)), grantor)
        yield SqlStep(revoke, change, independent=is_settled, always_run=is_settled)
