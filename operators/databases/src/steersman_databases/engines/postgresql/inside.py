"""The plan for what is inside a database of PostgreSQL: the schema `public`, declared schemas and extensions."""

from __future__ import annotations

from collections.abc import Iterator

from ..actions import (
    AlterSchemaOwner,
    CreateExtension,
    CreateSchema,
    DropExtension,
    DropSchema,
    Grant,
    MoveExtension,
    UpdateExtension,
)
from ..claims import is_kin
from ..desired import DesiredDatabase, DesiredExtension, DesiredSchema, ObjectKind
from ..errors import ExtensionUnavailable, InvalidName, NotPermitted
from ..plan import Change, Plan, Step
from ..survey import PUBLIC, ExtensionOnDisk, Inside, SecuredObject, Survey
from .grants import PRIVILEGES
from .names import is_system_schema
from .survey import DATABASE_OWNER

_EVERYTHING = PRIVILEGES[ObjectKind.SCHEMA]


def plan_inside(survey: Survey, inside: Inside, desired: DesiredDatabase) -> Plan:
    """The steps inside a database that belongs to its owner already.

    Raises `ExtensionUnavailable`, and `NotPermitted` for a guest's extension that needs a superuser, or is another's.
    """
    steps: list[Step] = []
    if not any(schema.name == "public" for schema in desired.schemas):
        steps += _public(survey, inside, desired)
    missing: list[str] = []
    for schema in desired.schemas:
        if not schema.present:
            continue
        if schema.owner is not None and schema.owner not in survey.users:
            missing.append(f"role {schema.owner}, the owner of schema {schema.name}, is not there yet")
        else:
            steps += _schema(inside, desired, schema)
    for extension in desired.extensions:
        steps += _extension(survey, inside, desired, extension)
    # What was in a schema may have moved out by now, and what has not stops nothing else.
    steps += _dropped(inside, desired)
    return Plan(tuple(steps), tuple(missing))


def _public(survey: Survey, inside: Inside, desired: DesiredDatabase) -> Iterator[Step]:
    """The owner may use `public` and create in it, where it exists: an application may drop the schema."""
    owner = inside.schemas.get("public")
    if owner is None:
        return
    state = survey.users[desired.owner]
    counted = {PUBLIC, DATABASE_OWNER, desired.owner, *(one.role for one in state.memberships)}
    on = SecuredObject(ObjectKind.SCHEMA, desired.name, "public")
    held = {one.privilege for one in inside.privileges if one.on == on and one.grantee in counted}
    if held >= _EVERYTHING:
        return
    if owner not in counted:
        yield Step(AlterSchemaOwner(desired.name, "public", DATABASE_OWNER))
        owner = DATABASE_OWNER
    message = f"granted ALL on schema public of database {desired.name} to {desired.owner}"
    grantee = DATABASE_OWNER if owner == DATABASE_OWNER else owner
    acting = desired.owner if owner == DATABASE_OWNER else owner
    yield Step(Grant(grantee, on, tuple(sorted(_EVERYTHING)), acting), Change("GrantsRestored", message))


def _schema(inside: Inside, desired: DesiredDatabase, schema: DesiredSchema) -> Iterator[Step]:
    place = f"schema {schema.name} of database {desired.name}"
    found = inside.schemas.get(schema.name)
    owner = schema.owner or desired.owner
    if found is None:
        step = CreateSchema(desired.name, schema.name, owner, elevated=owner != desired.owner)
        yield Step(step, Change("SchemaCreated", f"created {place}"))
    elif found != owner and not (found == DATABASE_OWNER and owner == desired.owner):
        change = Change("OwnerRestored", f"gave {place} back to {owner} from {found}")
        yield Step(AlterSchemaOwner(desired.name, schema.name, owner), change)


def _dropped(inside: Inside, desired: DesiredDatabase) -> Iterator[Step]:
    for schema in desired.schemas:
        owner = None if schema.present else inside.schemas.get(schema.name)
        if owner is not None:
            elevated = owner not in (desired.owner, DATABASE_OWNER)
            drop = DropSchema(desired.name, schema.name, owner, elevated)
            change = Change("SchemaDropped", f"dropped schema {schema.name} of database {desired.name}")
            yield Step(drop, change)


def _extension(
    survey: Survey, inside: Inside, desired: DesiredDatabase, extension: DesiredExtension
) -> Iterator[Step]:
    steps = tuple(_extension_steps(inside, desired, extension))
    if steps and desired.guest:
        _require_permitted(survey, inside, desired, extension.name)
    return iter(steps)


def _require_permitted(survey: Survey, inside: Inside, desired: DesiredDatabase, name: str) -> None:
    """What is done to an extension is a superuser's work, unless it is a trusted one of the database's owner."""
    on_disk, found = inside.on_disk.get(name), inside.extensions.get(name)
    only = "so only objects from the cluster's own namespace may"
    if on_disk is None or not on_disk.trusted:
        # Its script runs as a superuser, and what it makes may reach other databases, files or hosts.
        raise NotPermitted("extension", name, f"is not trusted, {only} have it")
    if found is None or found.owner == desired.owner:
        return
    owner = survey.users.get(found.owner)
    if owner is None or not is_kin(owner.mark, desired.claim):
        raise NotPermitted("extension", name, f"belongs to {found.owner}, {only} change it")


def _extension_steps(inside: Inside, desired: DesiredDatabase, extension: DesiredExtension) -> Iterator[Step]:
    name = extension.name
    place = f"extension {name} in database {desired.name}"
    found, on_disk = inside.extensions.get(name), inside.on_disk.get(name)
    # One that the database's former owner made stays that one's.
    is_anothers = found is not None and found.owner != desired.owner
    elevated = is_anothers or on_disk is None or not on_disk.trusted
    if not extension.present:
        if found is not None:
            step = DropExtension(desired.name, name, desired.owner, elevated)
            yield Step(step, Change("ExtensionDropped", f"dropped {place}"))
        return
    if found is None:
        version = _available(name, on_disk, extension.version)
        schema = extension.schema or "public"
        create = CreateExtension(desired.name, name, schema, version, desired.owner, elevated)
        yield Step(create, Change("ExtensionCreated", f"created {place}"))
        return
    schema = extension.schema or found.schema
    if schema != found.schema:
        if is_system_schema(schema):
            # What others have added to it would come to where every session looks first, the operator's own included.
            raise InvalidName("extensions", schema, "nothing is moved to a schema of PostgreSQL's own")
        # Before its update, which is refused where others have planted something. Even a trusted one's objects are a
        # superuser's, and so is it to move them.
        move = MoveExtension(desired.name, name, schema, desired.owner, elevated=True)
        yield Step(move, Change("ExtensionMoved", f"moved {place} to schema {schema}"))
    if extension.version not in (None, found.version):
        version = _available(name, on_disk, extension.version)
        update = UpdateExtension(desired.name, name, schema, version, desired.owner, elevated)
        yield Step(update, Change("ExtensionUpdated", f"updated {place} from {found.version} to {version}"))


def _available(name: str, on_disk: ExtensionOnDisk | None, version: str | None) -> str:
    if on_disk is None:
        raise ExtensionUnavailable(name, None, ())
    if version is not None and version not in on_disk.versions:
        raise ExtensionUnavailable(name, version, on_disk.versions)
    return version or on_disk.default_version
