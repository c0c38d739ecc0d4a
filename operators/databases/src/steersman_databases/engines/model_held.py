"""What a server in memory holds, and who stands where in it. What actions make of it: `model_state`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .desired import ObjectKind
from .postgresql.survey import DATABASE_OWNER
from .survey import (
    PUBLIC,
    DatabaseState,
    ExtensionOnDisk,
    ExtensionState,
    Privilege,
    SecuredObject,
    UserState,
)

ON_DISK = {
    "pgcrypto": ExtensionOnDisk("1.3", frozenset({"1.2", "1.3"}), trusted=True),
    "pageinspect": ExtensionOnDisk("1.12", frozenset({"1.12"}), trusted=False),
}
"""The extensions that the model could install."""


@dataclass(slots=True)
class ModelInside:
    """The inside of one database."""

    schemas: dict[str, str] = field(default_factory=dict[str, str])
    objects: dict[SecuredObject, str] = field(default_factory=dict[SecuredObject, str])
    extensions: dict[str, ExtensionState] = field(default_factory=dict[str, ExtensionState])
    privileges: set[Privilege] = field(default_factory=set[Privilege])

    def owners(self) -> Iterator[str]:
        """Who owns something in it, some more than once."""
        yield from self.schemas.values()
        yield from self.objects.values()

    def mentions(self, name: str) -> bool:
        """Whether somebody owns something in it, was granted something, or granted it."""
        return name in self.owners() or any(stands(one, name) for one in self.privileges)


class Held:
    """Everything on one server, and who may do what there.

    Args:
        owners_matter: PostgreSQL has owners, MySQL has not.
        administrator: who may change everything.
    """

    def __init__(self, owners_matter: bool, administrator: UserState) -> None:
        self.owners_matter = owners_matter
        self.administrator = administrator.name
        self.users = {administrator.name: administrator}
        self.databases: dict[str, DatabaseState] = {}
        self.inside: dict[str, ModelInside] = {}
        self.on_server: frozenset[Privilege] = frozenset()
        """MySQL: what is held on all of it, in its own databases, and by patterns of names."""
        self.left: frozenset[Privilege] = frozenset()
        """MySQL: what is held on databases that are not there."""
        self._marks: dict[tuple[str, str], str] = {}
        """MySQL: of what is about to be created."""

    def announced(self) -> dict[str, str]:
        """MySQL: the marks of databases that are not there."""
        return {name: mark for (kind, name), mark in self._marks.items() if kind == "database"}

    def stands_in(self, name: str) -> frozenset[str]:
        """PostgreSQL: the databases in which a role owns or was granted something, themselves included."""
        if not self.owners_matter:
            return frozenset()
        return frozenset(
            database
            for database, inside in self.inside.items()
            if _is_granted(self.databases[database], name) or inside.mentions(name)
        )

    def owns_in(self, name: str) -> frozenset[str]:
        """The databases inside of which a role owns something."""
        return frozenset(database for database, inside in self.inside.items() if name in inside.owners())

    def admitted(self, name: str) -> frozenset[tuple[str, str]]:
        """The roles that somebody made others members of, with each of these."""
        given = ((one, user.name) for user in self.users.values() for one in user.memberships)
        return frozenset((one.role, member) for one, member in given if one.grantor == name)

    def roles_of(self, name: str) -> set[str]:
        """A role and all whose rights it has: PUBLIC's, what it inherits, and who it acts as."""
        found, waiting = {PUBLIC}, [name]
        while waiting:
            role = waiting.pop()
            user = self.users.get(role)
            if role in found or user is None:
                continue
            found.add(role)
            acts_as = {setting.removeprefix("role=") for setting in user.settings}
            waiting += [
                one.role
                for one in user.memberships
                if one.role in acts_as or (user.inherit if one.inherit is None else one.inherit)
            ]
        return found

    def reached_by(self, name: str) -> set[str]:
        """A user and all roles that it could act as, by others too."""
        found, waiting = set[str](), [name]
        while waiting:
            role = waiting.pop()
            if role not in found and role in self.users:
                found.add(role)
                waiting += [one.role for one in self.users[role].memberships]
        return found

    def holds(self, name: str, privilege: str, on: SecuredObject) -> bool:
        """Whether a role may do something to an object, by owning it, by grant, by membership or as everybody."""
        user = self.users[name]
        if user.superuser:
            return True
        roles = self.roles_of(name)
        database = self.databases[on.database]
        if database.owner in roles and self.owners_matter:
            roles.add(DATABASE_OWNER)
        inside = self.inside[on.database]
        held = database.privileges if on.kind is ObjectKind.DATABASE else inside.privileges
        covering = {on, replace(on, column=None)}
        if not self.owners_matter:
            covering.add(SecuredObject(ObjectKind.DATABASE, on.database))
            held = held | database.privileges
        if any(one.grantee in roles and one.privilege == privilege and one.on in covering for one in held):
            return True
        owner = inside.schemas.get(on.schema or "") if on.kind is ObjectKind.SCHEMA else inside.objects.get(on)
        return self.owners_matter and owner in roles and on.kind is not ObjectKind.SCHEMA

    def create(self, on: SecuredObject, owner: str) -> None:
        """An object that an application made; what was granted in advance is granted now."""
        inside = self.inside[on.database]
        inside.objects[on] = owner
        for one in list(inside.privileges):
            kind = one.on
            if kind.creator == owner and kind.kind is on.kind and kind.schema in (None, on.schema):
                inside.privileges.add(replace(one, on=on, grantor=owner))


def stands(one: Privilege, name: str) -> bool:
    """Whether it is somebody's, by whatever word."""
    return name in (one.grantee, one.grantor, one.on.creator)


def _is_granted(state: DatabaseState, name: str) -> bool:
    """Owning it, or something on it; what its owner has by that is written down nowhere else."""
    return state.owner == name or any(stands(one, name) for one in state.privileges)
