"""``Database``: one database on a server of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman.meta import Field, PrinterColumn, Quantity, Resource, Rule, Spec, Status, resource

EngineName = Literal["postgresql", "mysql"]
DeletionPolicy = Literal["Retain", "Delete"]
Phase = Literal["Pending", "Provisioning", "Ready", "Failed", "Deleting"]

_EFFECTIVE_DATABASE = "(has({0}.spec.databaseName) ? {0}.spec.databaseName : {0}.metadata.name)"
_EFFECTIVE_USER = "(has({0}.spec.username) ? {0}.spec.username : " + _EFFECTIVE_DATABASE + ")"


def _unchanged(expression: str) -> str:
    return f"{expression.format('self')} == {expression.format('oldSelf')}"


class DatabaseSpec(Spec):
    """The database that is wanted."""

    engine: Annotated[
        EngineName,
        Field(rules=(Rule(rule="self == oldSelf", message="engine is immutable: create a new Database instead"),)),
    ]
    """Database engine: postgresql or mysql. Immutable."""
    version: Annotated[str, Field(min_length=1, max_length=32)]
    """Version of the engine, such as "17" for PostgreSQL or "9.7" for MySQL."""
    storage_size: Annotated[
        Quantity,
        Field(
            rules=(
                Rule(
                    rule="quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",
                    message="storageSize can grow but never shrink: volumes cannot be made smaller",
                ),
                Rule(
                    rule="quantity(string(self)).isGreaterThan(quantity('0'))",
                    message="storageSize must be more than 0, such as 1Gi",
                ),
            )
        ),
    ] = Quantity("1Gi")
    """Size of the volume for the data. It can grow where the storage class allows it; it never shrinks."""
    database_name: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Name of the database on the server; the name of this object unless given. Immutable."""
    username: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """User that owns the database; databaseName unless given. Immutable."""
    deletion_policy: DeletionPolicy = "Retain"
    """What becomes of the volume, and of the Secrets that open its data, when this object is deleted. What was
    retained is adopted by a new Database of the same name."""


class DatabaseStatus(Status):
    """The database as it is."""

    phase: Phase | None = None
    """Pending (waits for the cluster), Provisioning, Ready, Failed (needs a person), or Deleting."""
    connection_string: str | None = None
    """How to connect, with <secret> in the password's place; the password is in the Secret."""
    secret_name: str | None = None
    """Secret for applications: host, port, dbname, user, password and uri."""


@resource(
    group="databases.steersman.dev",
    version="v1alpha1",
    short_names=["db"],
    categories=["all"],
    columns=[
        PrinterColumn("Engine", ".spec.engine"),
        PrinterColumn("Version", ".spec.version"),
        PrinterColumn("Size", ".spec.storageSize"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn("Connection", ".status.connectionString", priority=1),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ],
    rules=[
        Rule(
            rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,43}[a-z0-9])?$')",
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
    """A database with its user, on a PostgreSQL or MySQL server of its own."""

    @property
    def database_name(self) -> str:
        """The database's name on the server, default included."""
        return self.spec.database_name or self.metadata.name

    @property
    def username(self) -> str:
        """The owning user's name, default included."""
        return self.spec.username or self.database_name
