"""Secrets of users that an object refers to.

The operator reads them on behalf of the object.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from steersman.meta import ObjectKey
from steersman_databases.api.backups.backup_store import BackupStore
from steersman_databases.api.backups.import_source import ImportSettings
from steersman_databases.api.database import Database
from steersman_databases.api.database_user import DatabaseUser
from steersman_databases.api.mysql_cluster import MySQLCluster, MySQLInitDb
from steersman_databases.api.postgresql_cluster import InitDb, PostgreSQLCluster
from steersman_databases.api.references import ServerReference, ServerTls

ReferencingObject = PostgreSQLCluster | MySQLCluster | Database | DatabaseUser | BackupStore
"""Kinds whose objects refer to Secrets."""


@dataclass(frozen=True, slots=True)
class ReferencedSecret:
    """A Secret that an object refers to.

    Attributes:
        field: path of the reference in wire names, such as `spec.password`.
        key: of the Secret.
        entries: used entries of its data, if the object names them.
    """

    field: str
    key: ObjectKey
    keys: tuple[str, ...] = ()


def referenced_secrets(obj: ReferencingObject) -> tuple[ReferencedSecret, ...]:
    """Return all Secrets of users that an object refers to."""
    if isinstance(obj, PostgreSQLCluster | MySQLCluster):
        return tuple(_of_cluster(obj))
    if isinstance(obj, BackupStore):
        return tuple(_of_store(obj))
    namespace, found = obj.metadata.namespace, list[ReferencedSecret]()
    if isinstance(obj, DatabaseUser) and (password := obj.spec.password) is not None:
        found.append(ReferencedSecret("spec.password", ObjectKey(namespace, password.name), (password.key,)))
    if obj.spec.server_ref is not None:
        found.extend(_of_server(obj.spec.server_ref, namespace))
    if isinstance(obj, Database) and (source := obj.import_settings) is not None:
        found.extend(_of_import(source, namespace))
    return tuple(found)


def _of_cluster(cluster: PostgreSQLCluster | MySQLCluster) -> Iterator[ReferencedSecret]:
    spec, namespace = cluster.spec, cluster.metadata.namespace
    if spec.tls.server_secret is not None:
        yield ReferencedSecret("spec.tls.serverSecret", ObjectKey(namespace, spec.tls.server_secret.name))
    if spec.bootstrap is not None and spec.bootstrap.initdb is not None:
        yield from _of_bootstrap_database(spec.bootstrap.initdb, namespace)
    for number, reference in enumerate(spec.image_pull_secrets):
        yield ReferencedSecret(f"spec.imagePullSecrets[{number}]", ObjectKey(namespace, reference.name))


def _of_store(store: BackupStore) -> Iterator[ReferencedSecret]:
    spec, namespace = store.spec, store.metadata.namespace
    if (credentials := spec.credentials.secret_ref) is not None:
        keys = (credentials.access_key_id_key, credentials.secret_access_key_key)
        if credentials.session_token_key is not None:
            keys = (*keys, credentials.session_token_key)
        yield ReferencedSecret("spec.credentials.secretRef", ObjectKey(namespace, credentials.name), keys)
    if (encryption := spec.encryption.secret_ref) is not None:
        yield ReferencedSecret("spec.encryption.secretRef", ObjectKey(namespace, encryption.name), (encryption.key,))
    if spec.s3 is not None and (authority := spec.s3.ca_secret_ref) is not None:
        yield ReferencedSecret("spec.s3.caSecretRef", ObjectKey(namespace, authority.name), (authority.key,))


def _of_bootstrap_database(initdb: InitDb | MySQLInitDb, namespace: str) -> Iterator[ReferencedSecret]:
    if initdb.secret is not None:
        yield ReferencedSecret("spec.bootstrap.initdb.secret", ObjectKey(namespace, initdb.secret.name))
    if initdb.post_init_application_sql_refs is not None:
        for number, sql in enumerate(initdb.post_init_application_sql_refs.secret_refs):
            field = f"spec.bootstrap.initdb.postInitApplicationSQLRefs.secretRefs[{number}]"
            yield ReferencedSecret(field, ObjectKey(namespace, sql.name), (sql.key,))


def _of_server(server: ServerReference, namespace: str) -> Iterator[ReferencedSecret]:
    administrator, tls = server.administrator, server.tls
    yield ReferencedSecret(
        "spec.serverRef.administrator",
        ObjectKey(administrator.namespace or namespace, administrator.name),
        (administrator.username_key, administrator.password_key),
    )
    yield from _of_tls("spec.serverRef.tls", tls, namespace)


def _of_import(source: ImportSettings, namespace: str) -> Iterator[ReferencedSecret]:
    account, field = source.credentials, "spec.bootstrap.import"
    keys = (account.username_key, account.password_key)
    yield ReferencedSecret(f"{field}.credentials", ObjectKey(namespace, account.name), keys)
    yield from _of_tls(f"{field}.tls", source.tls, namespace)


def _of_tls(field: str, tls: ServerTls, namespace: str) -> Iterator[ReferencedSecret]:
    if tls.ca is not None and (authority := tls.ca.secret_key_ref) is not None:
        yield ReferencedSecret(f"{field}.ca.secretKeyRef", ObjectKey(namespace, authority.name), (authority.key,))
    if tls.client_certificate is not None:
        yield ReferencedSecret(f"{field}.clientCertificate", ObjectKey(namespace, tls.client_certificate))
