"""Plan for the contents of a database: `public`, schemas and extensions."""

from __future__ import annotations

from collections.abc import Iterator

from steersman_databases.engines.errors import ExtensionUnavailable, InvalidName, NotPermitted
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredExtension, DesiredSchema, SecurableKind
from steersman_databases.engines.sql.inspection import (
    PUBLIC,
    DatabaseContents,
    ExtensionOnDisk,
    Inspection,
    SecuredObject,
)
from steersman_databases.engines.sql.ownership_marks import same_namespace
from steersman_databases.engines.sql.sql_actions import (
    AlterSchemaOwner,
    CreateExtension,
    CreateSchema,
    DropExtension,
    DropSchema,
    GrantPrivileges,
    MoveExtension,
    UpdateExtension,
)
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan, SqlStep

from ..sql.database_inspection import DATABASE_OWNER
from .grants import PRIVILEGES
from .identifiers import is_system_schema

_ALL_SCHEMA_PRIVILEGES = PRIVILEGES[SecurableKind.SCHEMA]


def plan_database_contents(inspection: Inspection, contents: DatabaseContents, desired: DesiredDatabase) -> SqlPlan:
    """Plan the steps inside a database that has the right owner.

    Raises:
        ExtensionUnavailable: the server lacks an extension or its version.
        NotPermitted: a guest's extension needs a superuser, or belongs to another owner.
    """
    steps: list[SqlStep] = []
    if not any(schema.name == "public" for schema in desired.schemas):
        steps += _public_schema(inspection, contents, desired)
    missing: list[str] = []
    for schema in desired.schemas:
        if not schema.present:
            continue
        if schema.owner is not None and schema.owner not in inspection.users:
            missing.append(f"role {schema.owner}, the owner of schema {schema.name}, does not exist yet")
        else:
            steps += _schema(contents, desired, schema)
    for extension in desired.extensions:
        steps += _extension(inspection, contents, desired, extension)
    # Last: objects may have left a schema by now, and a schema that is not empty blocks no other step.
    steps += _drop_schemas(contents, desired)
    return SqlPlan(tuple(steps), tuple(missing))


def _public_schema(inspection: Inspection, contents: DatabaseContents, desired: DesiredDatabase) -> Iterator[SqlStep]:
    """Grant the owner USAGE and CREATE on `public`, if the schema exists.

    An application may drop it.
    """
    owner = contents.schemas.get("public")
    if owner is None:
        return
    state = inspection.users[desired.owner]
    effective = {PUBLIC, DATABASE_OWNER, desired.owner, *(one.role for one in state.memberships)}
    target = SecuredObject(SecurableKind.SCHEMA, desired.name, "public")
    held_privileges = {
        one.privilege for one in contents.privileges if one.target == target and one.grantee in effective
    }
    if held_privileges >= _ALL_SCHEMA_PRIVILEGES:
        return
    if owner not in effective:
        yield SqlStep(AlterSchemaOwner(desired.name, "public", DATABASE_OWNER))
        owner = DATABASE_OWNER
    message = f"granted ALL on schema public of database {desired.name} to {desired.owner}"
    grantee = DATABASE_OWNER if owner == DATABASE_OWNER else owner
    grantor_role = desired.owner if owner == DATABASE_OWNER else owner
    yield SqlStep(
        GrantPrivileges(grantee, target, tuple(sorted(_ALL_SCHEMA_PRIVILEGES)), grantor_role),
        SqlChange("GrantsRestored", message),
    )


def _schema(contents: DatabaseContents, desired: DesiredDatabase, schema: DesiredSchema) -> Iterator[SqlStep]:
    place = f"schema {schema.name} of database {desired.name}"
    found = contents.schemas.get(schema.name)
    owner = schema.owner or desired.owner
    if found is None:
        step = CreateSchema(desired.name, schema.name, owner, elevated=owner != desired.owner)
        yield SqlStep(step, SqlChange("SchemaCreated", f"created {place}"))
    elif found != owner and not (found == DATABASE_OWNER and owner == desired.owner):
        change = SqlChange("OwnerRestored", f"changed the owner of {place} from {found} back to {owner}")
        yield SqlStep(AlterSchemaOwner(desired.name, schema.name, owner), change)


def _drop_schemas(contents: DatabaseContents, desired: DesiredDatabase) -> Iterator[SqlStep]:
    for schema in desired.schemas:
        owner = None if schema.present else contents.schemas.get(schema.name)
        if owner is not None:
            elevated = owner not in (desired.owner, DATABASE_OWNER)
            drop = DropSchema(desired.name, schema.name, owner, elevated)
            change = SqlChange("SchemaDropped", f"dropped schema {schema.name} of database {desired.name}")
            yield SqlStep(drop, change)


def _extension(
    inspection: Inspection, contents: DatabaseContents, desired: DesiredDatabase, extension: DesiredExtension
) -> Iterator[SqlStep]:
    steps = tuple(_extension_steps(contents, desired, extension))
    if steps and desired.cross_namespace:
        _require_permitted(inspection, contents, desired, extension.name)
    return iter(steps)


def _require_permitted(
    inspection: Inspection, contents: DatabaseContents, desired: DesiredDatabase, name: str
) -> None:
    """Refuse a guest's extension that only a superuser may change.

    A trusted extension of the database's owner is allowed.
    """
    on_disk, found = contents.available_extensions.get(name), contents.extensions.get(name)
    allowed = "so only objects from the cluster's own namespace can"
    if on_disk is None or not on_disk.trusted:
        # Its script runs as a superuser, and its objects may reach other databases, files or hosts.
        raise NotPermitted("extension", name, f"is not trusted, {allowed} declare it")
    if found is None or found.owner == desired.owner:
        return
    owner = inspection.users.get(found.owner)
    if owner is None or not same_namespace(owner.mark, desired.mark):
        raise NotPermitted("extension", name, f"belongs to {found.owner}, {allowed} change it")


def _extension_steps(
    contents: DatabaseContents, desired: DesiredDatabase, extension: DesiredExtension
) -> Iterator[SqlStep]:
    name = extension.name
    place = f"extension {name} in database {desired.name}"
    found, on_disk = contents.extensions.get(name), contents.available_extensions.get(name)
    # An extension that a previous owner created still belongs to that role.
    is_foreign = found is not None and found.owner != desired.owner
    elevated = is_foreign or on_disk is None or not on_disk.trusted
    if not extension.present:
        if found is not None:
            step = DropExtension(desired.name, name, desired.owner, elevated)
            yield SqlStep(step, SqlChange("ExtensionDropped", f"dropped {place}"))
        return
    if found is None:
        version = _available(name, on_disk, extension.version)
        schema = extension.schema or "public"
        create = CreateExtension(desired.name, name, schema, version, desired.owner, elevated)
        yield SqlStep(create, SqlChange("ExtensionCreated", f"created {place}"))
        return
    schema = extension.schema or found.schema
    if schema != found.schema:
        if is_system_schema(schema):
            # Planted members would move to a schema that all sessions search first, including the operator's.
            raise InvalidName("extensions", schema, "a system schema cannot hold extensions")
        # Before its update, which is refused next to planted objects. Even the objects of a trusted extension belong
        # to a superuser, so only a superuser can move them.
        move = MoveExtension(desired.name, name, schema, desired.owner, elevated=True)
        yield SqlStep(move, SqlChange("ExtensionMoved", f"moved {place} to schema {schema}"))
    if extension.version not in (None, found.version):
        version = _available(name, on_disk, extension.version)
        update = UpdateExtension(desired.name, name, schema, version, desired.owner, elevated)
        yield SqlStep(update, SqlChange("ExtensionUpdated", f"updated {place} from {found.version} to {version}"))


def _available(name: str, on_disk: ExtensionOnDisk | None, version: str | None) -> str:
    if on_disk is None:
        raise ExtensionUnavailable(name, None, ())
    if version is not None and version not in on_disk.versions:
        raise ExtensionUnavailable(name, version, on_disk.versions)
    return version or on_disk.default_version
