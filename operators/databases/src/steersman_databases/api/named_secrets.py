"""The Secrets that an object names: those of other people, which the operator reads because the object says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from steersman.meta import ObjectKey
from steersman_databases.api.database import Database
from steersman_databases.api.mysql_cluster import MySQLCluster, MySQLInitDb
from steersman_databases.api.postgresql_cluster import InitDb, PostgreSQLCluster
from steersman_databases.api.references import ServerReference
from steersman_databases.api.users import DatabaseUser

Naming = PostgreSQLCluster | MySQLCluster | Database | DatabaseUser
"""Kinds whose objects name Secrets."""


@dataclass(frozen=True, slots=True)
class NamedSecret:
    """A Secret that an object names.

    Attributes:
        field: where, as a path in wire names, such as ``spec.password``.
        key: of the Secret.
        entries: the entries of its data that are used, where the object says which.
    """

    field: str
    key: ObjectKey
    entries: tuple[str, ...] = ()


def named_secrets(of: Naming) -> tuple[NamedSecret, ...]:
    """All Secrets that an object names, but for those that the operator makes."""
    if isinstance(of, PostgreSQLCluster | MySQLCluster):
        return tuple(_of_cluster(of))
    namespace, found = of.metadata.namespace, list[NamedSecret]()
    if isinstance(of, DatabaseUser) and (password := of.spec.password) is not None:
        found.append(NamedSecret("spec.password", ObjectKey(namespace, password.name), (password.key,)))
    if of.spec.server_ref is not None:
        found.extend(_of_server(of.spec.server_ref, namespace))
    return tuple(found)


def _of_cluster(cluster: PostgreSQLCluster | MySQLCluster) -> Iterator[NamedSecret]:
    spec, namespace = cluster.spec, cluster.metadata.namespace
    if spec.tls.server_secret is not None:
        yield NamedSecret("spec.tls.serverSecret", ObjectKey(namespace, spec.tls.server_secret.name))
    if spec.bootstrap is not None:
        yield from _of_first_database(spec.bootstrap.initdb, namespace)
    for number, reference in enumerate(spec.image_pull_secrets):
        yield NamedSecret(f"spec.imagePullSecrets[{number}]", ObjectKey(namespace, reference.name))


def _of_first_database(initdb: InitDb | MySQLInitDb, namespace: str) -> Iterator[NamedSecret]:
    if initdb.secret is not None:
        yield NamedSecret("spec.bootstrap.initdb.secret", ObjectKey(namespace, initdb.secret.name))
    if initdb.post_init_application_sql_refs is not None:
        for number, sql in enumerate(initdb.post_init_application_sql_refs.secret_refs):
            field = f"spec.bootstrap.initdb.postInitApplicationSQLRefs.secretRefs[{number}]"
            yield NamedSecret(field, ObjectKey(namespace, sql.name), (sql.key,))


def _of_server(server: ServerReference, namespace: str) -> Iterator[NamedSecret]:
    administrator, tls = server.administrator, server.tls
    yield NamedSecret(
        "spec.serverRef.administrator",
        ObjectKey(administrator.namespace or namespace, administrator.name),
        (administrator.username_key, administrator.password_key),
    )
    if tls.ca is not None and (authority := tls.ca.secret_key_ref) is not None:
        yield NamedSecret(
            "spec.serverRef.tls.ca.secretKeyRef", ObjectKey(namespace, authority.name), (authority.key,)
        )
    if tls.client_certificate is not None:
        yield NamedSecret("spec.serverRef.tls.clientCertificate", ObjectKey(namespace, tls.client_certificate))
