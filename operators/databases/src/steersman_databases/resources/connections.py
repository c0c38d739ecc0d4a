"""Secrets by which applications connect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from steersman.api.apply import core, meta
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.meta import ObjectKey
from steersman_databases.engines import Credentials, connection_uri, jdbc_uri
from steersman_databases.engines.port import Contents
from steersman_databases.engines.server import Endpoint, Server, TLSMode
from steersman_databases.resources.names import MANAGED_BY
from steersman_databases.resources.secrets import owned_by

USER_LABELS: Mapping[str, str] = {
    "app.kubernetes.io/managed-by": MANAGED_BY,
    "app.kubernetes.io/component": "database-user",
}
"""On the Secrets of users: without an instance, since they belong to no server's objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What an application needs to connect.

    Attributes:
        engine: its name.
        scheme: of the engine's connection strings.
        credentials: of the application.
        database: may be empty, for a user that has none.
        authorities: PEM certificates by which the server is verified, if they are known.
        verified: whether the strings ask for that, where an engine has words for it.
    """

    engine: str
    scheme: str
    endpoint: Endpoint
    credentials: Credentials
    database: str
    authorities: bytes | None = None
    verified: bool = False

    def entries(self) -> dict[str, bytes]:
        """The Secret's. Source: Service Binding, "Well-known Secret Entries"; jdbc-uri as other operators have it."""
        username, password = self.credentials.username, self.credentials.password
        # MySQL's drivers have no word for it in common.
        verified = self.verified and self.engine == "postgresql"
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
    server: Server, contents: Contents, credentials: Credentials, database: str
) -> dict[str, bytes]:
    """The entries for a user of ``server``, whose authorities are handed on and whose administrator is not."""
    authorities = server.verification.authorities
    connection = Connection(
        engine=contents.name,
        scheme=contents.uri_scheme,
        endpoint=server.endpoint,
        credentials=credentials,
        database=database,
        authorities=authorities,
        verified=bool(authorities) and server.verification.mode is TLSMode.VERIFY_FULL,
    )
    return connection.entries()


def user_secret(key: ObjectKey, data: Mapping[str, bytes]) -> core.Secret:
    """The connection Secret of a user; its owner is set by who writes it."""
    return core.Secret(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=USER_LABELS), type="Opaque", data=data
    )


def database_secret(
    key: ObjectKey, labels: Mapping[str, str], data: Mapping[str, bytes], claims: Sequence[PersistentVolumeClaim]
) -> core.Secret:
    """The connection Secret of a database. It goes with the claims; without any, it stays with what is retained."""
    owners = [owned_by(claim) for claim in claims] or UNSET
    return core.Secret(
        metadata=meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels, owner_references=owners),
        type="Opaque",
        data=data,
    )
