"""Secrets with the connection details of applications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from steersman.api.apply import core, meta
from steersman.meta import ObjectKey
from steersman_databases.core.database_naming import MANAGED_BY
from steersman_databases.engines import SqlCredentials, connection_uri, jdbc_uri
from steersman_databases.engines.server import DatabaseServer, ServerEndpoint, TLSMode
from steersman_databases.engines.sql.sql_engine import SqlEngine

USER_LABELS: Mapping[str, str] = {
    "app.kubernetes.io/managed-by": MANAGED_BY,
    "app.kubernetes.io/component": "database-user",
}
"""Labels of users' Secrets. They name no instance, since they belong to no server's objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDetails:
    """Connection details of an application.

    Attributes:
        engine: name of the engine.
        scheme: scheme of the engine's connection strings.
        credentials: credentials of the application.
        database: empty for a user without a database.
        authorities: PEM certificates that verify the server, if they are known.
        verified: connection strings require verification, where the engine's drivers support it.
    """

    engine: str
    scheme: str
    endpoint: ServerEndpoint
    credentials: SqlCredentials
    database: str
    authorities: bytes | None = None
    verifies_server: bool = False

    def entries(self) -> dict[str, bytes]:
        """Entries of the Secret.

        Source: Service Binding, "Well-known Secret Entries". `jdbc-uri` follows other operators.
        """
        username, password = self.credentials.username, self.credentials.password
        # MySQL's drivers share no option for verification.
        verified = self.verifies_server and self.engine == "postgresql"
        parts = (self.scheme, self.endpoint, username, password, self.database)
        entries = {
            "type": self.engine,
            "provider": MANAGED_BY,
            "host": self.endpoint.host,
            "port": str(self.endpoint.port),
            "dbname": self.database,
            "database": self.database,
            "user": username,
            "username": username,
            "password": password,
            "uri": connection_uri(*parts) + ("?sslmode=verify-full" if verified else ""),
            "jdbc-uri": jdbc_uri(*parts) + ("&sslmode=verify-full" if verified else ""),
        }
        encoded = {key: value.encode() for key, value in entries.items()}
        return {**encoded, "ca.crt": self.authorities} if self.authorities else encoded


def connection_entries(
    server: DatabaseServer, sql_engine: SqlEngine, credentials: SqlCredentials, database: str
) -> dict[str, bytes]:
    """Entries for a user of `server`: its CA certificates, without its administrator."""
    authorities = server.verification.ca_bundle
    connection = ConnectionDetails(
        engine=sql_engine.name,
        scheme=sql_engine.uri_scheme,
        endpoint=server.endpoint,
        credentials=credentials,
        database=database,
        authorities=authorities,
        verifies_server=bool(authorities) and server.verification.mode is TLSMode.VERIFY_FULL,
    )
    return connection.entries()


def user_secret(key: ObjectKey, data: Mapping[str, bytes]) -> core.Secret:
    """Connection Secret of a user. The caller sets the owner."""
    return core.Secret(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=USER_LABELS), type="Opaque", data=data
    )


def database_secret(
    key: ObjectKey, labels: Mapping[str, str], data: Mapping[str, bytes], owners: Sequence[meta.OwnerReference]
) -> core.Secret:
    """Connection Secret of a database.

    It is deleted with the last owner. Without any, it stays with the retained data.
    """
    return core.Secret(
        metadata=meta.ObjectMeta(
            name=key.name, namespace=key.namespace, labels=labels, owner_references=owners or UNSET
        ),
        type="Opaque",
        data=data,
    )
