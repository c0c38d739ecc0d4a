"""Secrets by which applications connect."""

from __future__ import annotations

from collections.abc import Mapping

from steersman.api.apply.core_v1 import SecretApply
from steersman.meta import ObjectKey, ObjectMetaApply
from steersman_databases.engines import Credentials, connection_uri
from steersman_databases.engines.port import Contents
from steersman_databases.engines.server import Endpoint, Server, TLSMode
from steersman_databases.resources.names import MANAGED_BY

USER_LABELS: Mapping[str, str] = {
    "app.kubernetes.io/managed-by": MANAGED_BY,
    "app.kubernetes.io/component": "database-user",
}
"""On the Secrets of users: without an instance, since they belong to no server's objects."""


def connection_entries(
    server: Server, contents: Contents, credentials: Credentials, database: str
) -> dict[str, bytes]:
    """What an application needs to connect. Source: Service Binding, "Well-known Secret Entries".

    Args:
        server: where it connects to; its authorities are handed on, its administrator is not.
        contents: the engine.
        credentials: of the application.
        database: may be empty, for a user that has none.
    """
    endpoint: Endpoint = server.endpoint
    username, authorities = credentials.username, server.verification.authorities
    uri = connection_uri(contents.uri_scheme, endpoint, username, credentials.password, database)
    if authorities and contents.name == "postgresql" and server.verification.mode is TLSMode.VERIFY_FULL:
        uri = f"{uri}?sslmode=verify-full"
    entries = {
        "type": contents.name,
        "provider": MANAGED_BY,
        "host": endpoint.host,
        "port": str(endpoint.port),
        "dbname": database,
        "database": database,
        "user": username,
        "username": username,
        "password": credentials.password,
        "uri": uri,
    }
    encoded = {key: value.encode() for key, value in entries.items()}
    return {**encoded, "ca.crt": authorities} if authorities else encoded


def user_secret(key: ObjectKey, data: Mapping[str, bytes]) -> SecretApply:
    """The connection Secret of a user; its owner is set by who writes it."""
    return SecretApply(
        metadata=ObjectMetaApply(name=key.name, namespace=key.namespace, labels=USER_LABELS), type="Opaque", data=data
    )


def database_secret(key: ObjectKey, labels: Mapping[str, str], data: Mapping[str, bytes]) -> SecretApply:
    """The connection Secret of a database. Nobody owns it: it stays with what is retained."""
    return SecretApply(
        metadata=ObjectMetaApply(name=key.name, namespace=key.namespace, labels=labels), type="Opaque", data=data
    )
