"""``bootstrap.import``: server and database that the first data come from."""

from __future__ import annotations

from typing import Annotated

from steersman.meta import Field, FrozenStruct
from steersman_databases.api.names import PRINTABLE, Key, Name, ObjectName
from steersman_databases.api.references import ServerTls


class AccountReference(FrozenStruct):
    """Secret of an account, in the namespace of this object."""

    name: Name
    """Name of the Secret."""
    username_key: Key = "username"
    """Key of the user name."""
    password_key: Key = "password"  # noqa: S105 - the name of a key
    """Key of the password."""


class ImportSettings(FrozenStruct):
    """Import of a database from a running server of the same engine."""

    host: Annotated[str, Field(min_length=1, max_length=253, pattern=PRINTABLE)]
    """DNS name or IP address of the source."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the source. Defaults to that of the engine."""
    database_name: ObjectName | None = None
    """Name of the database on the source. Defaults to databaseName of the new database."""
    credentials: AccountReference
    """Secret of an account that can read the whole database."""
    tls: ServerTls = ServerTls()
    """TLS verification of the source."""
