"""What each action makes of what a server in memory holds. No time, no failures: those are `model`'s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import singledispatchmethod

from steersman_databases.engines.errors import ConcurrentChange, SqlFailed
from steersman_databases.engines.mysql.planning.identifiers import RESERVED_DATABASES
from steersman_databases.engines.postgresql.sql.database_inspection import DATABASE_OWNER
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import (
    PUBLIC,
    DatabaseState,
    ExtensionState,
    HeldPrivilege,
    RoleMembership,
    SecuredObject,
    UserState,
)
from steersman_databases.engines.sql.sql_actions import (
    INCOMPLETE_MARKER,
    NO_EXPIRY,
    AlterDatabase,
    AlterRole,
    AlterSchemaOwner,
    CreateDatabase,
    CreateExtension,
    CreateRole,
    CreateSchema,
    DiscardOldPassword,
    DropDatabase,
    DropExtension,
    DropRole,
    DropSchema,
    FinishDatabase,
    GrantPrivileges,
    GrantRole,
    MoveExtension,
    ReassignOwned,
    RestoreOwnership,
    RevokeOrphaned,
    RevokePrivileges,
    RevokeRole,
    RoleAttributes,
    SetActiveRoles,
    SetRoleSetting,
    SetVerifier,
    SqlAction,
    TagDatabase,
    TagUser,
    TerminateSessions,
    UpdateExtension,
)

from .contents import FakeDatabaseContents, ServerContents, remains


class FakeServerState(ServerContents):
    """What is held changes by actions."""

    @singledispatchmethod
    def apply(self, action: SqlAction) -> None:
        """What the action makes of this server. Raises what a real server would."""
        raise NotImplementedError(type(action).__name__)

    @apply.register
    def _(self, action: CreateRole) -> None:
        if action.name in self.users:
            raise ConcurrentChange(SqlFailed(f"creating user {action.name}", "42710", "it exists already"))
        mark = action.mark or self._marks.pop(("user", action.name), None)
        made = UserState(action.name, verifier=action.verifier, mark=mark)
        self.users[action.name] = _with_attributes(made, action.attributes)

    @apply.register
    def _(self, action: AlterRole) -> None:
        self.users[action.name] = _with_attributes(self._user(action.name), action.attributes)

    @apply.register
    def _(self, action: SetVerifier) -> None:
        user = self._user(action.name)
        second = action.second_verifier or (user.verifier if action.retain_current else user.second_verifier)
        self.users[action.name] = replace(user, verifier=action.verifier, second_verifier=second)

    @apply.register
    def _(self, action: DiscardOldPassword) -> None:
        self.users[action.name] = replace(self._user(action.name), second_verifier=None)

    @apply.register
    def _(self, action: SetRoleSetting) -> None:
        user = self._user(action.name)
        self.users[action.name] = replace(user, settings=frozenset({f"role={action.role}"}))

    @apply.register
    def _(self, action: TagUser) -> None:
        if not self.has_owners and action.name not in self.users:
            self._marks["user", action.name] = action.text
            return
        self.users[action.name] = replace(self._user(action.name), mark=action.text)

    @apply.register
    def _(self, action: TagDatabase) -> None:
        if not self.has_owners and action.name not in self.databases:
            self._marks["owner", action.name] = action.owner
            self._marks["database", action.name] = action.text
            return
        if action.before_creation:
            raise ConcurrentChange(SqlFailed(f"marking database {action.name}", None, "it was created meanwhile"))
        state = replace(self._database(action.name), mark=action.text)
        self.databases[action.name] = state if self.has_owners else replace(state, marked_owner=action.owner)

    @apply.register
    def _(self, action: GrantRole) -> None:
        given = action.membership
        member, role = self._user(action.member), self._user(given.role)
        # MySQL's are active from the login on only once that is set.
        inherit = self.has_owners and (member.inherit if given.inherit is None else given.inherit)
        given = replace(given, inherit=inherit, set_role=given.set_role is not False)
        others = {one for one in member.memberships if (one.role, one.grantor) != (given.role, given.grantor)}
        self.users[member.name] = replace(member, memberships=frozenset(others | {given}))
        mirrored = replace(given, role=member.name)
        rest = {one for one in role.members if (one.role, one.grantor) != (member.name, given.grantor)}
        self.users[role.name] = replace(self.users[role.name], members=frozenset(rest | {mirrored}))

    @apply.register
    def _(self, action: RevokeRole) -> None:
        member = self._user(action.member)
        by = {one.grantor for one in member.memberships if one.role == action.role and one.admin}
        admitted = any(role == action.role for role, _ in self.granted_members(member.name))
        if self.has_owners and by == {action.grantor} and admitted:
            raise SqlFailed(f"revoking membership in {action.role}", "2BP01", "dependent privileges exist")
        self._remove_memberships(member.name, lambda one: (one.role, one.grantor) != (action.role, action.grantor))
        if action.role in self.users:
            role = self.users[action.role]
            rest = {one for one in role.members if (one.role, one.grantor) != (member.name, action.grantor)}
            self.users[action.role] = replace(role, members=frozenset(rest))

    @apply.register
    def _(self, action: SetActiveRoles) -> None:
        user = self._user(action.name)
        active = frozenset(replace(one, inherit=one.role in action.roles) for one in user.memberships)
        self.users[action.name] = replace(user, memberships=active)

    @apply.register
    def _(self, action: GrantPrivileges) -> None:
        if action.target.kind.is_in_database and not self._is_on_server(action.target):
            self._database(action.target.database)
        grantor = self._grantor(action.target, action.as_role)
        held = self._privileges(action.target)
        for privilege in action.privileges:
            former = {one for one in held if _is_same_grant(one, action.grantee, action.target, privilege, grantor)}
            grantable = action.grantable or any(one.grantable for one in former)
            held -= former
            held.add(HeldPrivilege(action.grantee, action.target, privilege, grantor, grantable))
        self._store_privileges(action.target, held)

    @apply.register
    def _(self, action: RevokePrivileges) -> None:
        grantor = self._grantor(action.target, action.as_role)
        held = self._privileges(action.target)
        # What is revoked on a table goes from its columns too.
        taken = [
            one
            for one in held
            if action.target in (one.target, replace(one.target, column=None)) and one.privilege in action.privileges
            if (one.grantee, one.grantor) == (action.grantee, grantor)
        ]
        self._require_not_delegated(taken, held)
        held.difference_update(taken)
        held.update(replace(one, grantable=False) for one in taken if action.grant_option_only)
        self._store_privileges(action.target, held)

    @apply.register
    def _(self, action: RevokeOrphaned) -> None:
        self.apply(RevokePrivileges(action.grantee, action.target, action.privileges, ""))

    @apply.register
    def _(self, action: CreateDatabase) -> None:
        if action.name in self.databases:
            raise ConcurrentChange(SqlFailed(f"creating database {action.name}", "42P04", "it exists already"))
        collation = action.collation or ("C.UTF-8" if self.has_owners else _default_collation(action.encoding))
        made = DatabaseState(action.name, "", action.encoding, collation, action.character_type or "C.UTF-8")
        made = replace(made, locale_provider=action.locale_provider or "builtin")
        held = frozenset(one for one in self.orphaned if one.target.database == action.name)
        self.orphaned -= held
        on_it = frozenset(one for one in held if one.target.kind is SecurableKind.DATABASE)
        owner, mark = (self._marks.pop((kind, action.name), None) for kind in ("owner", "database"))
        made = replace(made, marked_owner=owner or "", mark=mark, privileges=on_it)
        self.contents[action.name] = FakeDatabaseContents(privileges=set(held - on_it))
        if self.has_owners:
            on = SecuredObject(SecurableKind.DATABASE, action.name)
            who = self.administrator
            every = {(who, privilege) for privilege in ("CONNECT", "CREATE", "TEMPORARY")}
            every |= {(PUBLIC, privilege) for privilege in ("CONNECT", "TEMPORARY")}
            held = frozenset(HeldPrivilege(grantee, on, privilege, who) for grantee, privilege in every)
            made = replace(
                made, owner=who, allows_connections=False, connection_limit=INCOMPLETE_MARKER, privileges=held
            )
            inside = self.contents[action.name]
            inside.schemas["public"] = DATABASE_OWNER
            public = SecuredObject(SecurableKind.SCHEMA, action.name, "public")
            for grantee, privilege in ((DATABASE_OWNER, "USAGE"), (DATABASE_OWNER, "CREATE"), (PUBLIC, "USAGE")):
                inside.privileges.add(HeldPrivilege(grantee, public, privilege, DATABASE_OWNER))
        self.databases[action.name] = made

    @apply.register
    def _(self, action: FinishDatabase) -> None:
        state = replace(self._database(action.name), allows_connections=True, mark=action.mark)
        state = replace(state, connection_limit=action.connection_limit)
        self.databases[action.name] = _owned_by(state, action.owner)

    @apply.register
    def _(self, action: AlterDatabase) -> None:
        state = self._database(action.name)
        if action.owner is not None:
            state = _owned_by(state, action.owner)
        if action.connection_limit is not None:
            state = replace(state, connection_limit=action.connection_limit)
        if action.allows_connections is not None:
            state = replace(state, allows_connections=action.allows_connections)
        if action.is_template is not None:
            state = replace(state, is_template=action.is_template)
        if action.encoding is not None:
            state = replace(state, encoding=action.encoding, collation=_default_collation(action.encoding))
        if action.collation is not None:
            state = replace(state, collation=action.collation)
        self.databases[action.name] = state

    @apply.register
    def _(self, action: RestoreOwnership) -> None:
        self.databases[action.database] = _owned_by(self._database(action.database), action.owner)
        self._change_owner(action.database, action.previous_owner, action.owner)

    @apply.register
    def _(self, action: CreateSchema) -> None:
        self._contents(action.database).schemas[action.name] = action.owner

    @apply.register
    def _(self, action: AlterSchemaOwner) -> None:
        inside = self._contents(action.database)
        former = inside.schemas[action.name]
        inside.schemas[action.name] = action.owner
        on = SecuredObject(SecurableKind.SCHEMA, action.database, action.name)
        inside.privileges = {
            _with_new_owner(one, former, action.owner) if one.target == on else one for one in inside.privileges
        }

    @apply.register
    def _(self, action: DropSchema) -> None:
        inside = self._contents(action.database)
        if any(on.schema == action.name for on in inside.objects):
            raise SqlFailed(f"dropping schema {action.name}", "2BP01", "other objects depend on it")
        del inside.schemas[action.name]
        inside.privileges = {one for one in inside.privileges if one.target.schema != action.name}

    @apply.register
    def _(self, action: CreateExtension) -> None:
        state = ExtensionState(action.version or "1.0", action.schema, action.as_role)
        self._contents(action.database).extensions[action.name] = state

    @apply.register
    def _(self, action: UpdateExtension) -> None:
        extensions = self._contents(action.database).extensions
        extensions[action.name] = replace(extensions[action.name], version=action.version)

    @apply.register
    def _(self, action: MoveExtension) -> None:
        extensions = self._contents(action.database).extensions
        extensions[action.name] = replace(extensions[action.name], schema=action.schema)

    @apply.register
    def _(self, action: DropExtension) -> None:
        self._contents(action.database).extensions.pop(action.name, None)

    @apply.register
    def _(self, action: TerminateSessions) -> None:
        self._user(action.name)

    @apply.register
    def _(self, action: ReassignOwned) -> None:
        inside = self._contents(action.database)
        if action.new_owner is not None:
            self._change_owner(action.database, action.name, action.new_owner)
        elif action.name in inside.owners():
            raise ConcurrentChange(
                SqlFailed(f"revoking what {action.name} has", "40001", "it has become the owner of an object there")
            )
        inside.privileges = {one for one in inside.privileges if not remains(one, action.name)}
        for name, state in self.databases.items():
            if state.owner == action.name and action.new_owner is not None:
                state = _owned_by(state, action.new_owner)
            kept = frozenset(one for one in state.privileges if not remains(one, action.name))
            self.databases[name] = replace(state, privileges=kept)

    @apply.register
    def _(self, action: DropRole) -> None:
        self._user(action.name)
        owned = any(state.owner == action.name for state in self.databases.values())
        if self.has_owners and (owned or self.has_privileges_in(action.name)):
            raise SqlFailed(f"dropping user {action.name}", "2BP01", "some objects depend on it")
        del self.users[action.name]
        for name, user in self.users.items():
            self._remove_memberships(name, lambda one: action.name not in (one.role, one.grantor))
            members = frozenset(one for one in user.members if one.role != action.name)
            self.users[name] = replace(self.users[name], members=members)
        for name, state in self.databases.items():
            kept = frozenset(one for one in state.privileges if one.grantee != action.name)
            owner = "" if state.marked_owner == action.name else state.marked_owner
            self.databases[name] = replace(state, privileges=kept, marked_owner=owner)
        for inside in self.contents.values():
            inside.privileges = {one for one in inside.privileges if one.grantee != action.name}
        self.on_server = frozenset(one for one in self.on_server if one.grantee != action.name)
        self.orphaned = frozenset(one for one in self.orphaned if one.grantee != action.name)

    @apply.register
    def _(self, action: DropDatabase) -> None:
        if self._marks.pop(("database", action.name), None) is not None:
            del self._marks["owner", action.name]
            return
        state, inside = self._database(action.name), self.contents[action.name]
        if state.is_template:
            raise SqlFailed(f"dropping database {action.name}", "42809", "cannot drop a template database")
        if not self.has_owners:
            self.orphaned |= state.privileges | inside.privileges
        del self.databases[action.name], self.contents[action.name]

    def _user(self, name: str) -> UserState:
        if name not in self.users:
            raise ConcurrentChange(SqlFailed(f"changing user {name}", "42704", "it was dropped meanwhile"))
        return self.users[name]

    def _database(self, name: str) -> DatabaseState:
        if name not in self.databases:
            raise ConcurrentChange(SqlFailed(f"changing database {name}", "3D000", "it was dropped meanwhile"))
        return self.databases[name]

    def _contents(self, name: str) -> FakeDatabaseContents:
        self._database(name)
        return self.contents[name]

    def _is_on_server(self, target: SecuredObject) -> bool:
        pattern = target.kind is SecurableKind.DATABASE and target.name is not None
        own = not self.has_owners and target.database in RESERVED_DATABASES
        return target.kind is SecurableKind.SERVER or pattern or own

    def _privileges(self, target: SecuredObject) -> set[HeldPrivilege]:
        if self._is_on_server(target):
            return set(self.on_server)
        if not self.has_owners and target.database not in self.databases:
            return set(self.orphaned)
        if target.kind is SecurableKind.DATABASE:
            return set(self._database(target.database).privileges)
        return set(self._contents(target.database).privileges)

    def _store_privileges(self, target: SecuredObject, credentials: set[HeldPrivilege]) -> None:
        if self._is_on_server(target):
            self.on_server = frozenset(credentials)
        elif not self.has_owners and target.database not in self.databases:
            self.orphaned = frozenset(credentials)
        elif target.kind is SecurableKind.DATABASE:
            self.databases[target.database] = replace(
                self.databases[target.database], privileges=frozenset(credentials)
            )
        else:
            self.contents[target.database].privileges = credentials

    def _grantor(self, target: SecuredObject, as_role: str) -> str:
        """Who acts as the owner's one member grants as the owner."""
        schemas = self.contents[target.database].schemas if target.database in self.contents else {}
        public = target.kind is SecurableKind.SCHEMA and schemas.get(target.schema or "") == DATABASE_OWNER
        return DATABASE_OWNER if public and self._database(target.database).owner == as_role else as_role

    def _require_not_delegated(self, taken: list[HeldPrivilege], credentials: set[HeldPrivilege]) -> None:
        """What somebody passed on stays, and so does the right to it, unless another gave that too."""
        for it in (one for one in taken if one.grantable and self.has_owners):
            on_it = [one for one in credentials if (one.target, one.privilege) == (it.target, it.privilege)]
            left = any(one.grantable for one in on_it if one.grantee == it.grantee and one.grantor != it.grantor)
            if not left and any(one.grantor == it.grantee for one in on_it):
                raise SqlFailed(f"revoking {it.privilege}", "2BP01", "dependent privileges exist")

    def _remove_memberships(self, name: str, stays: Callable[[RoleMembership], bool]) -> None:
        user = self.users[name]
        self.users[name] = replace(user, memberships=frozenset(one for one in user.memberships if stays(one)))

    def _change_owner(self, database: str, previous: str, owner: str) -> None:
        inside = self.contents[database]
        given = {on for on, whose in inside.objects.items() if whose == previous}
        schemas = [schema for schema, whose in inside.schemas.items() if whose == previous]
        given |= {SecuredObject(SecurableKind.SCHEMA, database, schema) for schema in schemas}
        inside.objects = {on: owner if whose == previous else whose for on, whose in inside.objects.items()}
        inside.schemas = {name: owner if whose == previous else whose for name, whose in inside.schemas.items()}
        inside.privileges = {
            _with_new_owner(one, previous, owner) if one.target in given else one for one in inside.privileges
        }


def _default_collation(encoding: str) -> str:
    """The collation of a character set where none is given (MySQL)."""
    return f"{encoding}_usual_ci"


def _with_attributes(user: UserState, attributes: RoleAttributes) -> UserState:
    given = {one.name: getattr(attributes, one.name) for one in fields(attributes)}
    changed = {name: value for name, value in given.items() if value is not None}
    if changed.get("valid_until") == NO_EXPIRY:
        changed["valid_until"] = None
    return replace(user, **changed)


def _is_same_grant(one: HeldPrivilege, grantee: str, target: SecuredObject, privilege: str, grantor: str) -> bool:
    return (one.grantee, one.target, one.privilege, one.grantor) == (grantee, target, privilege, grantor)


def _with_new_owner(one: HeldPrivilege, previous: str, owner: str) -> HeldPrivilege:
    grantee = owner if one.grantee == previous else one.grantee
    return replace(one, grantee=grantee, grantor=owner if one.grantor == previous else one.grantor)


def _owned_by(state: DatabaseState, owner: str) -> DatabaseState:
    privileges = frozenset(_with_new_owner(one, state.owner, owner) for one in state.privileges)
    return replace(state, owner=owner, privileges=privileges)
