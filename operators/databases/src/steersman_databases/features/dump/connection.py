"""Connection of a dump's Job to the server of a ``Database``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steersman.api.apply import core
from steersman.meta import ObjectKey
from steersman_databases.api import Database
from steersman_databases.api.backups.import_source import ImportSettings
from steersman_databases.api.references import ServerReference, ServerTls, TlsMode
from steersman_databases.core.database_naming import DatabaseNames
from steersman_databases.engines.naming import OPERATOR_ROLE, ClusterNames

_PORTS = {"postgresql": 5432, "mysql": 3306}
_MODE = 0o440


class NotConnectable(Exception):
    """Jobs cannot connect to the server. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConnection:
    """Address of a server, and the files to connect to it.

    Args:
        administrator: name of the account that logs in by certificate; empty if a Secret names it.
        files: files of the administrator and of TLS, for one volume.
    """

    host: str
    port: int
    database: str
    tls: TlsMode
    administrator: str = ""
    files: tuple[core.VolumeProjection, ...] = ()

    def document(self) -> Mapping[str, object]:
        """The member ``server`` or ``source`` of ``job.json``."""
        return {
            "host": self.host,
            "port": self.port,
            "database": self.database,
            "tls": self.tls,
            "administrator": self.administrator,
        }


def connection_of(database: Database) -> JobConnection:
    """Return the connection to the server of a ``Database``.

    Raises:
        NotConnectable: the administrator's Secret is in another namespace.
    """
    reference, namespace = database.spec.server_ref, database.metadata.namespace
    if reference is not None:
        return _of_server(database, reference)
    cluster = database.spec.cluster_ref
    key = database.key if cluster is None else ObjectKey(cluster.namespace or namespace, cluster.name)
    names = ClusterNames(key)
    host = f"{names.service('rw').name}.{key.namespace}.svc"
    port = _PORTS[database.engine]
    if key.namespace != namespace:
        # Certificates are in the namespace of the cluster, and pods mount none of another namespace.
        return JobConnection(host=host, port=port, database=database.database_name, tls="Require")
    files = [_entry(name, name) for name in ("ca.crt", "tls.crt", "tls.key")]
    return JobConnection(
        host=host,
        port=port,
        database=database.database_name,
        tls="VerifyFull",
        administrator=OPERATOR_ROLE,
        files=(_secret(names.operator_certificate.name, *files),),
    )


def import_connection(database: Database, source: ImportSettings) -> JobConnection:
    """Return the connection to the source of an import."""
    account = source.credentials
    return JobConnection(
        host=source.host,
        port=source.port or _PORTS[database.engine],
        database=source.database_name or database.database_name,
        tls=source.tls.mode,
        files=(
            _secret(account.name, _entry(account.username_key, "username"), _entry(account.password_key, "password")),
            *_tls_files(source.tls),
        ),
    )


def owner_files(database: Database) -> core.Volume:
    """Return the volume ``owner`` with the account of the database's owner."""
    items = [_entry("username", "username"), _entry("password", "password")]
    secret = DatabaseNames(database.key).application_secret.name
    source = core.SecretVolumeSource(secret_name=secret, items=items, optional=True, default_mode=_MODE)
    return core.Volume(name="owner", secret=source)


def server_files(connection: JobConnection, name: str = "server") -> core.Volume:
    """Return the volume with the files of a connection."""
    source = core.ProjectedVolumeSource(default_mode=_MODE, sources=list(connection.files))
    return core.Volume(name=name, projected=source)


def _of_server(database: Database, reference: ServerReference) -> JobConnection:
    namespace, administrator = database.metadata.namespace, reference.administrator
    if administrator.namespace not in (None, namespace):
        raise NotConnectable(
            f"spec.serverRef.administrator is a Secret of namespace {administrator.namespace}, which pods in"
            f" namespace {namespace} cannot mount. Create the Secret in namespace {namespace}"
        )
    host = reference.host or ""
    if (service := reference.service) is not None:
        host = f"{service.name}.{service.namespace or namespace}.svc"
    account = _secret(
        administrator.name,
        _entry(administrator.username_key, "username"),
        _entry(administrator.password_key, "password"),
    )
    return JobConnection(
        host=host,
        port=reference.port or _PORTS[database.engine],
        database=database.database_name,
        tls=reference.tls.mode,
        files=(account, *_tls_files(reference.tls)),
    )


def _tls_files(tls: ServerTls) -> tuple[core.VolumeProjection, ...]:
    files: list[core.VolumeProjection] = []
    if tls.ca is not None and (secret := tls.ca.secret_key_ref) is not None:
        files.append(_secret(secret.name, _entry(secret.key, "ca.crt")))
    if tls.ca is not None and (config := tls.ca.config_map_key_ref) is not None:
        items = [_entry(config.key, "ca.crt")]
        files.append(
            core.VolumeProjection(config_map=core.ConfigMapProjection(name=config.name, items=items, optional=True))
        )
    if tls.client_certificate is not None:
        files.append(_secret(tls.client_certificate, _entry("tls.crt", "tls.crt"), _entry("tls.key", "tls.key")))
    return tuple(files)


def _secret(name: str, *items: core.KeyToPath) -> core.VolumeProjection:
    # The programs report a missing file in a sentence; a missing Secret would keep the pod from starting.
    return core.VolumeProjection(secret=core.SecretProjection(name=name, items=list(items), optional=True))


def _entry(key: str, path: str) -> core.KeyToPath:
    return core.KeyToPath(key=key, path=path)
