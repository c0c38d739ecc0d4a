"""``Database``: one logical database, on a cluster, on any server, or on a cluster of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman.meta import (
    Field,
    FrozenStruct,
    PrinterColumn,
    Quantity,
    Resource,
    Rule,
    Spec,
    Status,
    at_most_one_of,
    resource,
    schema,
)
from steersman_databases.api.group import GROUP, NAME_PATTERN, VERSION, DeletionPolicy, EngineName, Presence
from steersman_databases.api.names import PRINTABLE, ObjectName, SqlName
from steersman_databases.api.references import KEPT_SERVER, ON_MYSQL, ClusterReference, ServerReference, engine_of

Phase = Literal["Pending", "Provisioning", "Ready", "Failed", "Deleting"]

DEFAULT_STORAGE_SIZE = Quantity("1Gi")

_EFFECTIVE_DATABASE = "(has({0}.spec.databaseName) ? {0}.spec.databaseName : {0}.metadata.name)"
_EFFECTIVE_USER = "(has({0}.spec.username) ? {0}.spec.username : " + _EFFECTIVE_DATABASE + ")"
_SIZE = "(has({0}.storageSize) ? quantity(string({0}.storageSize)) : quantity('1Gi'))"
_ON_POSTGRESQL = f"(has(self.engine) ? self.engine == 'postgresql' : !{ON_MYSQL})"


def _unchanged(expression: str) -> str:
    return f"{expression.format('self')} == {expression.format('oldSelf')}"


def _postgresql_only(*fields: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            rule=f"{_ON_POSTGRESQL} || !has(self.{field})",
            message=f"{field} is PostgreSQL's: leave it out for this engine",
            field_path=f".{field}",
        )
        for field in fields
    )


class Extension(FrozenStruct):
    """An extension in the database."""

    name: SqlName
    """Name of the extension, such as pg_trgm."""
    version: SqlName | None = None
    """The version to install or to update to; the server's default unless given."""
    schema: SqlName | None = None
    """The schema that its objects are in; public unless given, or the one that the extension insists on."""
    ensure: Presence = "Present"
    """Present, or Absent to drop it. What depends on it is never dropped."""


class Schema(FrozenStruct):
    """A schema in the database."""

    name: SqlName
    """Name of the schema."""
    owner: SqlName | None = None
    """Its owner; the owner of the database unless given."""
    ensure: Presence = "Present"
    """Present, or Absent to drop it. A schema with something in it is never dropped."""


@schema(
    rules=[
        at_most_one_of("clusterRef", "serverRef"),
        KEPT_SERVER,
        Rule(
            rule="has(self.engine) || has(self.clusterRef)",
            message="engine is needed: only with clusterRef the cluster says it",
            field_path=".engine",
        ),
        Rule(
            rule=f"!has(self.engine) || !has(self.clusterRef) || (self.engine == 'mysql') == {ON_MYSQL}",
            message="engine is not the cluster's: leave it out, or set it to what clusterRef.kind says",
            field_path=".engine",
        ),
        Rule(
            rule="has(self.clusterRef) || has(self.serverRef) || has(self.version)",
            message="version is needed: the server is made for this Database",
            field_path=".version",
        ),
        Rule(
            rule="!(has(self.clusterRef) || has(self.serverRef)) || !has(self.version)",
            message="version is the server's: leave it out with clusterRef and serverRef",
            field_path=".version",
        ),
        Rule(
            rule="!(has(self.clusterRef) || has(self.serverRef)) || !has(self.storageSize)",
            message="storageSize is the server's: leave it out with clusterRef and serverRef",
            field_path=".storageSize",
        ),
        Rule(
            rule=f"{_SIZE.format('self')}.compareTo({_SIZE.format('oldSelf')}) >= 0",
            message="storageSize can grow but never shrink: volumes cannot be made smaller",
            field_path=".storageSize",
        ),
        Rule(
            rule="!has(self.owner) || !has(self.username)",
            message="owner is a role that is there, username one to be made: set one of them",
            field_path=".owner",
        ),
        *_postgresql_only("extensions", "schemas", "template", "connectionLimit"),
    ]
)
class DatabaseSpec(Spec):
    """The database that is wanted."""

    engine: Annotated[EngineName | None, Field(immutable=True)] = None
    """Database engine: postgresql or mysql. Needed without clusterRef. Immutable."""
    cluster_ref: Annotated[ClusterReference | None, Field(immutable=True)] = None
    """The cluster that the database is on. Immutable."""
    server_ref: ServerReference | None = None
    """The server that the database is on, where it is none of this operator's. Neither given nor taken away
    later; host, service and port are immutable."""
    version: Annotated[str, Field(min_length=1, max_length=32)] | None = None
    """Version of the engine, such as "17" for PostgreSQL or "9.7" for MySQL; of a server that is made for this
    Database."""
    storage_size: (
        Annotated[
            Quantity,
            Field(
                rules=(
                    Rule(
                        rule="quantity(string(self)).isGreaterThan(quantity('0'))",
                        message="storageSize must be more than 0, such as 1Gi",
                    ),
                )
            ),
        ]
        | None
    ) = None
    """Size of the volume for the data, of a server that is made for this Database; 1Gi unless given. It can grow
    where the storage class allows it; it never shrinks."""
    database_name: ObjectName | None = None
    """Name of the database on the server; the name of this object unless given. Immutable."""
    username: SqlName | None = None
    """User that is made to own the database; databaseName unless given. Immutable."""
    owner: SqlName | None = None
    """Role that owns the database and is there already. No user and no Secret are made then."""
    encoding: Annotated[str | None, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)] = None
    """Encoding; UTF8 unless given, on MySQL utf8mb4. Immutable."""
    collation: Annotated[str | None, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)] = None
    """Order of texts; the server's unless given. Immutable."""
    character_type: Annotated[str | None, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)] = (
        None
    )
    """PostgreSQL: what counts as a letter; the collation's unless given. Immutable."""
    template: Annotated[str | None, Field(min_length=1, max_length=63, pattern=PRINTABLE, immutable=True)] = None
    """PostgreSQL: the database that it is a copy of; template0 unless given. Immutable."""
    connection_limit: (
        Annotated[
            int,
            Field(
                ge=-1,
                le=262143,
                format="int32",
                rules=(
                    Rule(
                        rule="self != 0",
                        message="connectionLimit 0 would keep the operator out, too: set login of its users to false",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """PostgreSQL: how many sessions there may be at once; -1 is no limit, and 0 is refused."""
    extensions: Annotated[tuple[Extension, ...], Field(list_map_keys=("name",), max_items=64)] = ()
    """PostgreSQL: extensions in the database. Others that are there are left alone."""
    schemas: Annotated[tuple[Schema, ...], Field(list_map_keys=("name",), max_items=256)] = ()
    """PostgreSQL: schemas in the database. Others that are there are left alone."""
    adopt: bool = False
    """Take a database or a user of this name that is on the server already, and that nobody claims."""
    deletion_policy: DeletionPolicy = "Retain"
    """What becomes of the database when this object is deleted; of a server that was made for it, what becomes of the
    volume, and of the Secrets that open its data. What was retained is adopted by a new Database of the same name."""


class DatabaseStatus(Status):
    """The database as it is."""

    phase: Phase | None = None
    """Pending (waits for its server), Provisioning, Ready, Failed (needs a person), or Deleting."""
    engine: EngineName | None = None
    """The engine of its server, a cluster's included."""
    connection_string: str | None = None
    """How to connect, with <secret> in the password's place; the password is in the Secret."""
    secret_name: str | None = None
    """Secret for applications: host, port, dbname, user, password and uri."""


@resource(
    group=GROUP,
    version=VERSION,
    short_names=["db"],
    categories=["all"],
    columns=[
        PrinterColumn("Engine", ".status.engine"),
        PrinterColumn("Version", ".spec.version"),
        PrinterColumn("Size", ".spec.storageSize"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn("Connection", ".status.connectionString", priority=1),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ],
    rules=[
        Rule(
            rule=f"self.metadata.name.matches('{NAME_PATTERN}')",
            message="metadata.name must be at most 45 lower-case letters, digits and '-', starting with a letter: "
            "Services are named after it",
        ),
        Rule(
            rule=_unchanged(_EFFECTIVE_DATABASE),
            message="databaseName is immutable: create a new Database instead",
            field_path=".spec.databaseName",
        ),
        Rule(
            rule=_unchanged(_EFFECTIVE_USER),
            message="username is immutable: create a new Database instead",
            field_path=".spec.username",
        ),
    ],
)
class Database(Resource[DatabaseSpec, DatabaseStatus]):
    """A database with its user, on a PostgreSQL or MySQL server."""

    @property
    def database_name(self) -> str:
        """The database's name on the server, default included."""
        return self.spec.database_name or self.metadata.name

    @property
    def username(self) -> str:
        """The owning user's name, default included."""
        return self.spec.owner or self.own_username

    @property
    def own_username(self) -> str:
        """The user that is made where no ``owner`` is declared; it may have been before one was."""
        return self.spec.username or self.database_name

    @property
    def engine(self) -> EngineName:
        """The engine, the cluster's included."""
        return self.spec.engine or engine_of(self.spec.cluster_ref)

    @property
    def makes_cluster(self) -> bool:
        """Whether it is on a cluster of its own name, which is made for it."""
        return self.spec.cluster_ref is None and self.spec.server_ref is None

    @property
    def version(self) -> str:
        """The version of its own server; empty on another's."""
        return self.spec.version or ""

    @property
    def storage_size(self) -> Quantity:
        """The size of its own server's volume, default included."""
        return self.spec.storage_size or DEFAULT_STORAGE_SIZE
