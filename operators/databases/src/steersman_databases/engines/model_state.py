"""What each action makes of what a server in memory holds. No time, no failures: those are `model`'s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import singledispatchmethod

from .actions import (
    FOREVER,
    HALF_MADE,
    Action,
    AlterDatabase,
    AlterSchemaOwner,
    AlterUser,
    Attributes,
    CreateDatabase,
    CreateExtension,
    CreateSchema,
    CreateUser,
    DiscardSecond,
    DropDatabase,
    DropExtension,
    DropSchema,
    DropUser,
    EndSessions,
    FinishDatabase,
    GiveBack,
    Grant,
    GrantRole,
    MarkDatabase,
    MarkUser,
    MoveExtension,
    Reassign,
    Revoke,
    RevokeLeft,
    RevokeRole,
    SetDefaultRoles,
    SetRoleSetting,
    SetVerifier,
    UpdateExtension,
)
from .desired import ObjectKind
from .errors import Raced, SqlFailed
from .model_held import Held, ModelInside, stands
from .mysql.names import RESERVED_DATABASES
from .postgresql.survey import DATABASE_OWNER
from .survey import (
    PUBLIC,
    DatabaseState,
    ExtensionState,
    Membership,
    Privilege,
    SecuredObject,
    UserState,
)


class State(Held):
    """What is held changes by actions."""

    @singledispatchmethod
    def apply(self, action: Action) -> None:
        """What the action makes of this server. Raises what a real server would."""
        raise NotImplementedError(type(action).__name__)

    @apply.register
    def _(self, action: CreateUser) -> None:
        if action.name in self.users:
            raise Raced(SqlFailed(f"creating user {action.name}", "42710", "it exists already"))
        mark = action.mark or self._marks.pop(("user", action.name), None)
        made = UserState(action.name, verifier=action.verifier, mark=mark)
        self.users[action.name] = _altered(made, action.attributes)

    @apply.register
    def _(self, action: AlterUser) -> None:
        self.users[action.name] = _altered(self._user(action.name), action.attributes)

    @apply.register
    def _(self, action: SetVerifier) -> None:
        user = self._user(action.name)
        second = action.beside or (user.verifier if action.retain else user.second_verifier)
        self.users[action.name] = replace(user, verifier=action.verifier, second_verifier=second)

    @apply.register
    def _(self, action: DiscardSecond) -> None:
        self.users[action.name] = replace(self._user(action.name), second_verifier=None)

    @apply.register
    def _(self, action: SetRoleSetting) -> None:
        user = self._user(action.name)
        self.users[action.name] = replace(user, settings=frozenset({f"role={action.role}"}))

    @apply.register
    def _(self, action: MarkUser) -> None:
        if not self.owners_matter and action.name not in self.users:
            self._marks["user", action.name] = action.text
            return
        self.users[action.name] = replace(self._user(action.name), mark=action.text)

    @apply.register
    def _(self, action: MarkDatabase) -> None:
        if not self.owners_matter and action.name not in self.databases:
            self._marks["owner", action.name] = action.owner
            self._marks["database", action.name] = action.text
            return
        if action.ahead:
            raise Raced(SqlFailed(f"marking database {action.name}", None, "it was made meanwhile"))
        state = replace(self._database(action.name), mark=action.text)
        self.databases[action.name] = state if self.owners_matter else replace(state, marked_owner=action.owner)

    @apply.register
    def _(self, action: GrantRole) -> None:
        given = action.membership
        member, role = self._user(action.member), self._user(given.role)
        # MySQL's are active from the login on only once that is set.
        inherit = self.owners_matter and (member.inherit if given.inherit is None else given.inherit)
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
        admitted = any(role == action.role for role, _ in self.admitted(member.name))
        if self.owners_matter and by == {action.grantor} and admitted:
            raise SqlFailed(f"revoking membership in {action.role}", "2BP01", "dependent privileges exist")
        self._leave(member.name, lambda one: (one.role, one.grantor) != (action.role, action.grantor))
        if action.role in self.users:
            role = self.users[action.role]
            rest = {one for one in role.members if (one.role, one.grantor) != (member.name, action.grantor)}
            self.users[action.role] = replace(role, members=frozenset(rest))

    @apply.register
    def _(self, action: SetDefaultRoles) -> None:
        user = self._user(action.name)
        active = frozenset(replace(one, inherit=one.role in action.roles) for one in user.memberships)
        self.users[action.name] = replace(user, memberships=active)

    @apply.register
    def _(self, action: Grant) -> None:
        if action.on.kind.is_inside and not self._is_on_server(action.on):
            self._database(action.on.database)
        grantor = self._grantor(action.on, action.as_role)
        held = self._privileges(action.on)
        for privilege in action.privileges:
            former = {one for one in held if _same(one, action.grantee, action.on, privilege, grantor)}
            grantable = action.grantable or any(one.grantable for one in former)
            held -= former
            held.add(Privilege(action.grantee, action.on, privilege, grantor, grantable))
        self._keep(action.on, held)

    @apply.register
    def _(self, action: Revoke) -> None:
        grantor = self._grantor(action.on, action.as_role)
        held = self._privileges(action.on)
        # What is revoked on a table goes from its columns too.
        taken = [
            one
            for one in held
            if action.on in (one.on, replace(one.on, column=None)) and one.privilege in action.privileges
            if (one.grantee, one.grantor) == (action.grantee, grantor)
        ]
        self._require_not_passed_on(taken, held)
        held.difference_update(taken)
        held.update(replace(one, grantable=False) for one in taken if action.only_option)
        self._keep(action.on, held)

    @apply.register
    def _(self, action: RevokeLeft) -> None:
        self.apply(Revoke(action.grantee, action.on, action.privileges, ""))

    @apply.register
    def _(self, action: CreateDatabase) -> None:
        if action.name in self.databases:
            raise Raced(SqlFailed(f"creating database {action.name}", "42P04", "it exists already"))
        collation = action.collation or ("C.UTF-8" if self.owners_matter else _usual(action.encoding))
        made = DatabaseState(action.name, "", action.encoding, collation, action.character_type or "C.UTF-8")
        held = frozenset(one for one in self.left if one.on.database == action.name)
        self.left -= held
        on_it = frozenset(one for one in held if one.on.kind is ObjectKind.DATABASE)
        owner, mark = (self._marks.pop((kind, action.name), None) for kind in ("owner", "database"))
        made = replace(made, marked_owner=owner or "", mark=mark, privileges=on_it)
        self.inside[action.name] = ModelInside(privileges=set(held - on_it))
        if self.owners_matter:
            on = SecuredObject(ObjectKind.DATABASE, action.name)
            who = self.administrator
            every = {(who, privilege) for privilege in ("CONNECT", "CREATE", "TEMPORARY")}
            every |= {(PUBLIC, privilege) for privilege in ("CONNECT", "TEMPORARY")}
            held = frozenset(Privilege(grantee, on, privilege, who) for grantee, privilege in every)
            made = replace(made, owner=who, allows_connections=False, connection_limit=HALF_MADE, privileges=held)
            inside = self.inside[action.name]
            inside.schemas["public"] = DATABASE_OWNER
            public = SecuredObject(ObjectKind.SCHEMA, action.name, "public")
            for grantee, privilege in ((DATABASE_OWNER, "USAGE"), (DATABASE_OWNER, "CREATE"), (PUBLIC, "USAGE")):
                inside.privileges.add(Privilege(grantee, public, privilege, DATABASE_OWNER))
        self.databases[action.name] = made

    @apply.register
    def _(self, action: FinishDatabase) -> None:
        state = replace(self._database(action.name), allows_connections=True, mark=action.mark)
        state = replace(state, connection_limit=action.connection_limit)
        self.databases[action.name] = _handed_over(state, action.owner)

    @apply.register
    def _(self, action: AlterDatabase) -> None:
        state = self._database(action.name)
        if action.owner is not None:
            state = _handed_over(state, action.owner)
        if action.connection_limit is not None:
            state = replace(state, connection_limit=action.connection_limit)
        if action.allows_connections is not None:
            state = replace(state, allows_connections=action.allows_connections)
        if action.is_template is not None:
            state = replace(state, is_template=action.is_template)
        if action.encoding is not None:
            state = replace(state, encoding=action.encoding, collation=_usual(action.encoding))
        if action.collation is not None:
            state = replace(state, collation=action.collation)
        self.databases[action.name] = state

    @apply.register
    def _(self, action: GiveBack) -> None:
        self.databases[action.database] = _handed_over(self._database(action.database), action.owner)
        self._hand_over(action.database, action.former, action.owner)

    @apply.register
    def _(self, action: CreateSchema) -> None:
        self._inside(action.database).schemas[action.name] = action.owner

    @apply.register
    def _(self, action: AlterSchemaOwner) -> None:
        inside = self._inside(action.database)
        former = inside.schemas[action.name]
        inside.schemas[action.name] = action.owner
        on = SecuredObject(ObjectKind.SCHEMA, action.database, action.name)
        inside.privileges = {_now(one, former, action.owner) if one.on == on else one for one in inside.privileges}

    @apply.register
    def _(self, action: DropSchema) -> None:
        inside = self._inside(action.database)
        if any(on.schema == action.name for on in inside.objects):
            raise SqlFailed(f"dropping schema {action.name}", "2BP01", "other objects depend on it")
        del inside.schemas[action.name]
        inside.privileges = {one for one in inside.privileges if one.on.schema != action.name}

    @apply.register
    def _(self, action: CreateExtension) -> None:
        state = ExtensionState(action.version or "1.0", action.schema, action.as_role)
        self._inside(action.database).extensions[action.name] = state

    @apply.register
    def _(self, action: UpdateExtension) -> None:
        extensions = self._inside(action.database).extensions
        extensions[action.name] = replace(extensions[action.name], version=action.version)

    @apply.register
    def _(self, action: MoveExtension) -> None:
        extensions = self._inside(action.database).extensions
        extensions[action.name] = replace(extensions[action.name], schema=action.schema)

    @apply.register
    def _(self, action: DropExtension) -> None:
        self._inside(action.database).extensions.pop(action.name, None)

    @apply.register
    def _(self, action: EndSessions) -> None:
        self._user(action.name)

    @apply.register
    def _(self, action: Reassign) -> None:
        inside = self._inside(action.database)
        if action.heir is not None:
            self._hand_over(action.database, action.name, action.heir)
        elif action.name in inside.owners():
            raise Raced(SqlFailed(f"revoking what {action.name} has", "40001", "it has come to own something there"))
        inside.privileges = {one for one in inside.privileges if not stands(one, action.name)}
        for name, state in self.databases.items():
            if state.owner == action.name and action.heir is not None:
                state = _handed_over(state, action.heir)
            kept = frozenset(one for one in state.privileges if not stands(one, action.name))
            self.databases[name] = replace(state, privileges=kept)

    @apply.register
    def _(self, action: DropUser) -> None:
        self._user(action.name)
        owned = any(state.owner == action.name for state in self.databases.values())
        if self.owners_matter and (owned or self.stands_in(action.name)):
            raise SqlFailed(f"dropping user {action.name}", "2BP01", "some objects depend on it")
        del self.users[action.name]
        for name, user in self.users.items():
            self._leave(name, lambda one: action.name not in (one.role, one.grantor))
            members = frozenset(one for one in user.members if one.role != action.name)
            self.users[name] = replace(self.users[name], members=members)
        for name, state in self.databases.items():
            kept = frozenset(one for one in state.privileges if one.grantee != action.name)
            owner = "" if state.marked_owner == action.name else state.marked_owner
            self.databases[name] = replace(state, privileges=kept, marked_owner=owner)
        for inside in self.inside.values():
            inside.privileges = {one for one in inside.privileges if one.grantee != action.name}
        self.on_server = frozenset(one for one in self.on_server if one.grantee != action.name)
        self.left = frozenset(one for one in self.left if one.grantee != action.name)

    @apply.register
    def _(self, action: DropDatabase) -> None:
        if self._marks.pop(("database", action.name), None) is not None:
            del self._marks["owner", action.name]
            return
        state, inside = self._database(action.name), self.inside[action.name]
        if state.is_template:
            raise SqlFailed(f"dropping database {action.name}", "42809", "cannot drop a template database")
        if not self.owners_matter:
            self.left |= state.privileges | inside.privileges
        del self.databases[action.name], self.inside[action.name]

    def _user(self, name: str) -> UserState:
        if name not in self.users:
            raise Raced(SqlFailed(f"changing user {name}", "42704", "it was dropped meanwhile"))
        return self.users[name]

    def _database(self, name: str) -> DatabaseState:
        if name not in self.databases:
            raise Raced(SqlFailed(f"changing database {name}", "3D000", "it was dropped meanwhile"))
        return self.databases[name]

    def _inside(self, name: str) -> ModelInside:
        self._database(name)
        return self.inside[name]

    def _is_on_server(self, on: SecuredObject) -> bool:
        pattern = on.kind is ObjectKind.DATABASE and on.name is not None
        own = not self.owners_matter and on.database in RESERVED_DATABASES
        return on.kind is ObjectKind.SERVER or pattern or own

    def _privileges(self, on: SecuredObject) -> set[Privilege]:
        if self._is_on_server(on):
            return set(self.on_server)
        if not self.owners_matter and on.database not in self.databases:
            return set(self.left)
        if on.kind is ObjectKind.DATABASE:
            return set(self._database(on.database).privileges)
        return set(self._inside(on.database).privileges)

    def _keep(self, on: SecuredObject, held: set[Privilege]) -> None:
        if self._is_on_server(on):
            self.on_server = frozenset(held)
        elif not self.owners_matter and on.database not in self.databases:
            self.left = frozenset(held)
        elif on.kind is ObjectKind.DATABASE:
            self.databases[on.database] = replace(self.databases[on.database], privileges=frozenset(held))
        else:
            self.inside[on.database].privileges = held

    def _grantor(self, on: SecuredObject, as_role: str) -> str:
        """Who acts as the owner's one member grants as the owner."""
        schemas = self.inside[on.database].schemas if on.database in self.inside else {}
        public = on.kind is ObjectKind.SCHEMA and schemas.get(on.schema or "") == DATABASE_OWNER
        return DATABASE_OWNER if public and self._database(on.database).owner == as_role else as_role

    def _require_not_passed_on(self, taken: list[Privilege], held: set[Privilege]) -> None:
        """What somebody passed on stays, and so does the right to it, unless another gave that too."""
        for it in (one for one in taken if one.grantable and self.owners_matter):
            on_it = [one for one in held if (one.on, one.privilege) == (it.on, it.privilege)]
            left = any(one.grantable for one in on_it if one.grantee == it.grantee and one.grantor != it.grantor)
            if not left and any(one.grantor == it.grantee for one in on_it):
                raise SqlFailed(f"revoking {it.privilege}", "2BP01", "dependent privileges exist")

    def _leave(self, name: str, stays: Callable[[Membership], bool]) -> None:
        user = self.users[name]
        self.users[name] = replace(user, memberships=frozenset(one for one in user.memberships if stays(one)))

    def _hand_over(self, database: str, former: str, owner: str) -> None:
        inside = self.inside[database]
        given = {on for on, whose in inside.objects.items() if whose == former}
        schemas = [schema for schema, whose in inside.schemas.items() if whose == former]
        given |= {SecuredObject(ObjectKind.SCHEMA, database, schema) for schema in schemas}
        inside.objects = {on: owner if whose == former else whose for on, whose in inside.objects.items()}
        inside.schemas = {name: owner if whose == former else whose for name, whose in inside.schemas.items()}
        inside.privileges = {_now(one, former, owner) if one.on in given else one for one in inside.privileges}


def _usual(encoding: str) -> str:
    """The collation of a character set where none is given (MySQL)."""
    return f"{encoding}_usual_ci"


def _altered(user: UserState, attributes: Attributes) -> UserState:
    given = {one.name: getattr(attributes, one.name) for one in fields(attributes)}
    changed = {name: value for name, value in given.items() if value is not None}
    if changed.get("valid_until") == FOREVER:
        changed["valid_until"] = None
    return replace(user, **changed)


def _same(one: Privilege, grantee: str, on: SecuredObject, privilege: str, grantor: str) -> bool:
    return (one.grantee, one.on, one.privilege, one.grantor) == (grantee, on, privilege, grantor)


def _now(one: Privilege, former: str, owner: str) -> Privilege:
    grantee = owner if one.grantee == former else one.grantee
    return replace(one, grantee=grantee, grantor=owner if one.grantor == former else one.grantor)


def _handed_over(state: DatabaseState, owner: str) -> DatabaseState:
    privileges = frozenset(_now(one, state.owner, owner) for one in state.privileges)
    return replace(state, owner=owner, privileges=privileges)
