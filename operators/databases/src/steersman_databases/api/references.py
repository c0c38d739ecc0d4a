"""References of databases and users to clusters, servers and Secrets."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman.meta import Field, FrozenStruct, Rule, exactly_one_of, schema
from steersman_databases.api.group import EngineName
from steersman_databases.api.names import PRINTABLE, Key, Name, Namespace, ServiceName, SqlName

ClusterKind = Literal["PostgreSQLCluster", "MySQLCluster"]
TlsMode = Literal["VerifyFull", "VerifyCA", "Require", "Disable"]


class ClusterReference(FrozenStruct):
    """A cluster of this operator."""

    name: Name
    """Name of the cluster."""
    namespace: Namespace | None = None
    """Namespace of the cluster. Defaults to that of this object. A cluster in another namespace must list this one
    in allowedNamespaces."""
    kind: ClusterKind = "PostgreSQLCluster"
    """Kind of the cluster."""


ON_MYSQL = "(has(self.clusterRef) && has(self.clusterRef.kind) && self.clusterRef.kind == 'MySQLCluster')"
"""CEL condition of specs that refer to a ``MySQLCluster``."""


def engine_of(reference: ClusterReference | None) -> EngineName:
    """Return the engine of a cluster reference, by default PostgreSQL."""
    return "mysql" if reference is not None and reference.kind == "MySQLCluster" else "postgresql"


class ServiceReference(FrozenStruct):
    """A Service in front of a server."""

    name: ServiceName
    """Name of the Service."""
    namespace: Namespace | None = None
    """Namespace of the Service. Defaults to that of this object. A Service in another namespace must list this one
    in the annotation databases.steersman.dev/allowed-namespaces."""


class AdministratorReference(FrozenStruct):
    """Secret of an account that can create databases and users."""

    name: Name
    """Name of the Secret."""
    namespace: Namespace | None = None
    """Namespace of the Secret. Defaults to that of this object. A Secret in another namespace must list this one in
    the annotation databases.steersman.dev/allowed-namespaces."""
    username_key: Key = "username"
    """Key of the user name."""
    password_key: Key = "password"  # noqa: S105 - the name of a key
    """Key of the password."""


class KeySelector(FrozenStruct):
    """A key of a Secret or ConfigMap in this object's namespace."""

    name: Name
    """Name of the Secret or ConfigMap."""
    key: Key
    """Key in the Secret or ConfigMap."""


@schema(rules=[exactly_one_of("secretKeyRef", "configMapKeyRef")])
class CertificateAuthoritySource(FrozenStruct):
    """CA certificates of a server, in PEM."""

    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""


class ServerTls(FrozenStruct):
    """TLS verification of a server."""

    mode: TlsMode = "VerifyFull"
    """TLS mode.

    VerifyFull (certificate chain and name), VerifyCA (certificate chain), Require (TLS without verification) or
    Disable (no TLS; on MySQL the same as Require).
    """
    ca: CertificateAuthoritySource | None = None
    """CA certificates of the server. Defaults to those that the operator's image trusts."""
    client_certificate: Name | None = None
    """Secret of type kubernetes.io/tls with the client certificate of the operator."""


@schema(
    rules=[
        exactly_one_of("host", "service"),
        Rule(
            rule="has(self.host) == has(oldSelf.host) && (!has(self.host) || self.host == oldSelf.host)"
            " && has(self.service) == has(oldSelf.service) && (!has(self.service) || self.service == oldSelf.service)"
            " && has(self.port) == has(oldSelf.port) && (!has(self.port) || self.port == oldSelf.port)",
            message="host, service and port are immutable: create a new object for another server",
        ),
    ]
)
class ServerReference(FrozenStruct):
    """An existing server that this operator does not manage, such as RDS."""

    host: Annotated[str, Field(min_length=1, max_length=253, pattern=PRINTABLE)] | None = None
    """DNS name or IP address. Immutable."""
    service: ServiceReference | None = None
    """Service of the server. Immutable."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port. Defaults to that of the engine. Immutable."""
    administrator: AdministratorReference
    """Secret of the account that the operator uses."""
    maintenance_database: SqlName | None = None
    """PostgreSQL: database that the operator connects to. Defaults to postgres."""
    tls: ServerTls = ServerTls()
    """TLS verification of the server."""


SAME_SERVER_RULE = Rule(
    rule="has(self.serverRef) == has(oldSelf.serverRef)",
    message="serverRef is neither given nor taken away later: create a new object",
    field_path=".serverRef",
)
"""Rule that keeps ``serverRef`` present or absent.

Its administrator and TLS may change.
"""
