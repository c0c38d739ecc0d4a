"""Where a database or a user lives: a cluster of ours, or any server."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman.meta import Field, FrozenStruct, Rule, exactly_one_of, schema
from steersman_databases.api.group import EngineName
from steersman_databases.api.names import PRINTABLE, Key, Name, Namespace, ServiceName, SqlName

ClusterKind = Literal["PostgreSQLCluster", "MySQLCluster"]
TlsMode = Literal["VerifyFull", "VerifyCA", "Require", "Disable"]


class ClusterReference(FrozenStruct):
    """A cluster of this operator's."""

    name: Name
    """Name of the cluster."""
    namespace: Namespace | None = None
    """Its namespace; that of this object unless given. A cluster elsewhere must let it in by allowedNamespaces."""
    kind: ClusterKind = "PostgreSQLCluster"
    """Kind of the cluster."""


ON_MYSQL = "(has(self.clusterRef) && has(self.clusterRef.kind) && self.clusterRef.kind == 'MySQLCluster')"
"""In rules of a spec: whether its cluster is one of MySQL's."""


def engine_of(reference: ClusterReference | None) -> EngineName:
    """The engine of a cluster that is referred to; PostgreSQL where none is."""
    return "mysql" if reference is not None and reference.kind == "MySQLCluster" else "postgresql"


class ServiceReference(FrozenStruct):
    """A Service in front of a server."""

    name: ServiceName
    """Name of the Service."""
    namespace: Namespace | None = None
    """Its namespace; that of this object unless given. A Service elsewhere must let it in by the annotation
    databases.steersman.dev/allowed-namespaces."""


class AdministratorReference(FrozenStruct):
    """The Secret that holds the name and the password of an account which may make databases and users."""

    name: Name
    """Name of the Secret."""
    namespace: Namespace | None = None
    """Its namespace; that of this object unless given. A Secret elsewhere must let it in by the annotation
    databases.steersman.dev/allowed-namespaces."""
    username_key: Key = "username"
    """Key of the name."""
    password_key: Key = "password"  # noqa: S105 - the name of a key
    """Key of the password."""


class KeySelector(FrozenStruct):
    """One key of a Secret or a ConfigMap in the namespace of this object."""

    name: Name
    """Name of the Secret or ConfigMap."""
    key: Key
    """The key in it."""


@schema(rules=[exactly_one_of("secretKeyRef", "configMapKeyRef")])
class Authority(FrozenStruct):
    """Where the certificates of those who may sign a server's stand, in PEM."""

    secret_key_ref: KeySelector | None = None
    """A key of a Secret."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap."""


class ServerTls(FrozenStruct):
    """How the operator verifies a server."""

    mode: TlsMode = "VerifyFull"
    """VerifyFull (chain and name), VerifyCA (the chain), Require (encrypted, to anybody), Disable (in clear text;
    as Require on MySQL)."""
    ca: Authority | None = None
    """Who signs the server's certificate; the authorities that the operator's image trusts unless given."""
    client_certificate: Name | None = None
    """Secret of type kubernetes.io/tls that the operator shows to the server."""


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
    """Any server that can be reached: RDS, one in a machine, one of another operator's."""

    host: Annotated[str, Field(min_length=1, max_length=253, pattern=PRINTABLE)] | None = None
    """DNS name or address. Immutable."""
    service: ServiceReference | None = None
    """A Service in front of it. Immutable."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port; that of the engine unless given. Immutable."""
    administrator: AdministratorReference
    """The Secret with the account that the operator uses."""
    maintenance_database: SqlName | None = None
    """PostgreSQL: the database that the operator logs in to; postgres unless given."""
    tls: ServerTls = ServerTls()
    """How the server is verified."""


KEPT_SERVER = Rule(
    rule="has(self.serverRef) == has(oldSelf.serverRef)",
    message="serverRef is neither given nor taken away later: create a new object",
    field_path=".serverRef",
)
"""Of a spec with ``serverRef``: its administrator and TLS may change, its presence not."""
