"""Resolve references to servers: address, credentials and CA certificates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard, TypeVar

from steersman.api.core_v1 import ConfigMap, Namespace, Secret, Service
from steersman.cache import CachedClient
from steersman.meta import Object, ObjectKey, metadata_only
from steersman.observability.runtime import Clock
from steersman_databases.api import Cluster, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.group import TARGET_LABEL
from steersman_databases.api.references import AdministratorReference, ServerReference, ServerTls
from steersman_databases.api.secret_references import referenced_secrets
from steersman_databases.cluster.declared import engine_of, kind_of
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.connection.input_limits import MAX_CREDENTIAL_BYTES
from steersman_databases.engines.connection.networks import Network
from steersman_databases.engines.errors import InvalidName
from steersman_databases.engines.naming import OPERATOR_ROLE, SUPERUSER_ROLE, ClusterNames
from steersman_databases.engines.server import (
    ClientKeyPair,
    DatabaseServer,
    Login,
    ServerEndpoint,
    TLSMode,
    Verification,
)
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_databases.features.certificates import authorities as certificates_authorities
from steersman_databases.sql import tenancy

T = TypeVar("T", bound=Object)

SqlEngineFactory = Callable[[str], SqlEngine]
"""Returns the SQL engine of a name."""


@dataclass(frozen=True, slots=True)
class ResolvedServer:
    """Resolved server. `server_namespace` is None for a server outside this Kubernetes cluster."""

    server: DatabaseServer
    sql_engine: SqlEngine
    namespace: str | None


class ServerNotResolved(Exception):
    """The server does not exist or is not ready. `gone`: it will not return for this object.

    `reason` is one of `ON_ANY_SERVER`.
    """

    def __init__(self, reason: str, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.gone = gone


class ServerResolver:
    """Resolves the servers that objects refer to.

    Args:
        client: client of the controller. Foreign Secrets and ConfigMaps are read live, since they are not cached.
        sql_engine_for: returns an engine; other components use it too.
        clock: dates the superuser's certificates.
        server_networks: networks that the servers of `serverRef` must be in. Empty permits all.
    """

    def __init__(
        self,
        client: CachedClient,
        sql_engine_for: SqlEngineFactory,
        clock: Clock,
        server_networks: tuple[Network, ...] = (),
    ) -> None:
        self._client, self._server_networks = client, server_networks
        self.sql_engine_for = sql_engine_for
        self._clock = clock

    async def resolve(self, obj: Database | DatabaseUser) -> ResolvedServer:
        """Server that an object refers to.

        Raises:
            ServerNotResolved: it is absent, not ready, or does not permit the object's namespace.
        """
        if obj.spec.server_ref is not None:
            return await self._external(obj, obj.spec.server_ref)
        kind, key = cluster_of(obj)
        if _has_cluster_label(obj):
            kind = await self._kind_by_label(key, obj.spec.engine)
        return await self._of_cluster(obj, kind, key)

    async def _kind_by_label(self, key: ObjectKey, engine: str | None) -> type[Cluster]:
        """Kind of the cluster that a label names."""
        every: tuple[type[Cluster], ...] = (PostgreSQLCluster, MySQLCluster)
        kinds = [kind for kind in every if engine in (None, engine_of(kind))]
        found = [kind for kind in kinds if await get_cached_or_live(self._client, kind, key) is not None]
        if len(found) > 1:
            both = " and ".join(f"a {kind.api_resource.kind}" for kind in found)
            raise ServerNotResolved(
                "ServerNotFound",
                f"the label {TARGET_LABEL} is ambiguous: there are {both} named {key.name}. Delete one of them, or"
                " recreate the object with engine or clusterRef",
            )
        if not found:
            desired = " or ".join(kind.api_resource.kind for kind in kinds)
            raise ServerNotResolved("ServerNotFound", f"{desired} {key.name} does not exist", gone=True)
        return found[0]

    async def _of_cluster(self, obj: Database | DatabaseUser, kind: type[Cluster], key: ObjectKey) -> ResolvedServer:
        cluster = await get_cached_or_live(self._client, kind, key)
        from_namespace, name = obj.metadata.namespace, kind.api_resource.kind
        if cluster is None or not tenancy.permits(cluster.spec.allowed_namespaces, key.namespace, from_namespace):
            if key.namespace == from_namespace:
                raise ServerNotResolved("ServerNotFound", f"{name} {key.name} does not exist", gone=True)
            gone = cluster is None or not _was_provisioned(obj)
            raise _reference_not_permitted(f"{name} {key}", from_namespace, "by spec.allowedNamespaces", gone=gone)
        if cluster.metadata.deletion_timestamp is not None:
            raise ServerNotResolved("ServerNotFound", f"{name} {key} is being deleted", gone=True)
        if cluster.spec.hibernated:
            raise ServerNotResolved("ServerNotReady", f"{name} {key} is hibernated")
        if not cluster.status.primary:
            raise ServerNotResolved("ServerNotReady", f"{name} {key} has no primary yet")
        engine = engine_of(kind)
        return ResolvedServer(await self.connection_to(name, engine, key), self.sql_engine_for(engine), key.namespace)

    async def resolve_own(self, cluster: DeclaredCluster) -> ResolvedServer:
        """Primary of a cluster, for the cluster's own controller.

        Raises:
            ServerNotResolved: its certificates are absent.
        """
        server = await self.connection_to(cluster.kind, cluster.engine, cluster.key)
        return ResolvedServer(server, self.sql_engine_for(cluster.engine), cluster.key.namespace)

    async def connection_to(self, kind: str, engine: str, cluster: ObjectKey) -> DatabaseServer:
        """Primary of a cluster, with the operator's own login.

        Raises:
            ServerNotResolved: its certificates are absent.
        """
        names = ClusterNames(cluster)
        stored = [
            await get_cached_or_live(self._client, Secret, k) for k in (names.operator_certificate, names.ca_secret)
        ]
        login = certificates_authorities.read_key_pair(stored[0].data) if stored[0] else None
        authorities = certificates_authorities.from_data(stored[1].data) if stored[1] else None
        if stored[0] is None or login is None or authorities is None:
            raise ServerNotResolved("ServerNotReady", f"{kind} {cluster} has no certificates yet")

        def superuser_login() -> Login:
            pair = certificates_authorities.issue_ephemeral(SUPERUSER_ROLE, authorities, self._clock.now())
            return Login(SUPERUSER_ROLE, certificate=pair.as_client_certificate)

        return DatabaseServer(
            engine=engine,
            endpoint=ServerEndpoint(host_of(cluster), self.sql_engine_for(engine).port),
            login=Login(OPERATOR_ROLE, certificate=login.as_client_certificate),
            verification=Verification(TLSMode.VERIFY_FULL, stored[0].data.get("ca.crt", b"")),
            superuser_login=superuser_login,
        )

    async def _external(self, obj: Database | DatabaseUser, reference: ServerReference) -> ResolvedServer:
        sql_engine, from_namespace = self.sql_engine_for(obj.engine), obj.metadata.namespace
        host, home = await self._address(obj, reference)
        if reference.maintenance_database is not None:
            try:
                sql_engine.check_name("serverRef.maintenanceDatabase", reference.maintenance_database)
            except InvalidName as error:
                raise ServerNotResolved("InvalidName", str(error)) from None
        secret = await self._administrator(obj, reference.administrator)
        verification, certificate = await self._verification(reference.tls, from_namespace)
        server = DatabaseServer(
            engine=obj.engine,
            endpoint=ServerEndpoint(host, reference.port or sql_engine.port),
            login=Login(
                _text(secret, reference.administrator.username_key),
                _text(secret, reference.administrator.password_key),
                certificate,
            ),
            verification=verification,
            maintenance_database=reference.maintenance_database or "postgres",
            networks=self._server_networks,
        )
        return ResolvedServer(server, sql_engine, home)

    async def _address(self, obj: Database | DatabaseUser, reference: ServerReference) -> tuple[str, str | None]:
        guest = obj.metadata.namespace
        if reference.service is None:
            return reference.host or "", None
        key = ObjectKey(reference.service.namespace or guest, reference.service.name)
        service = await self._client.get_or_none(metadata_only(Service), key)
        if service is None and key.namespace == guest:
            raise ServerNotResolved("ServerNotFound", f"Service {key.name} does not exist")
        if service is None or not tenancy.permits_by_annotation(service, guest):
            raise _reference_not_permitted(
                f"Service {key}", guest, "by an annotation", gone=not _was_provisioned(obj)
            )
        # Without `svc`, the name would be an internet name in a namespace that is called like a top-level domain.
        return f"{key.name}.{key.namespace}.svc", key.namespace

    async def _administrator(self, obj: Database | DatabaseUser, reference: AdministratorReference) -> Secret:
        guest = obj.metadata.namespace
        key = ObjectKey(reference.namespace or guest, reference.name)
        secret = await get_live(self._client, Secret, key)
        if key.namespace != guest and (secret is None or not tenancy.permits_by_annotation(secret, guest)):
            raise _reference_not_permitted(f"Secret {key}", guest, "by an annotation", gone=not _was_provisioned(obj))
        if secret is None:
            raise ServerNotResolved("AdministratorSecretMissing", f"Secret {key.name} does not exist")
        for name in (reference.username_key, reference.password_key):
            if not secret.data.get(name):
                raise ServerNotResolved("AdministratorSecretMissing", f"Secret {key.name} has no key {name}")
            if b"\0" in secret.data[name]:
                reported = f"Secret {key.name} has a NUL character in its key {name}"
                raise ServerNotResolved("AdministratorSecretMissing", reported)
            if len(secret.data[name]) > MAX_CREDENTIAL_BYTES:
                reported = f"Secret {key.name} has more than {MAX_CREDENTIAL_BYTES} bytes in its key {name}"
                raise ServerNotResolved("AdministratorSecretMissing", reported)
        return secret

    async def _verification(self, tls: ServerTls, from_namespace: str) -> tuple[Verification, ClientKeyPair | None]:
        authorities = certificate = None
        if tls.ca is not None:
            desired = tls.ca.secret_key_ref or tls.ca.config_map_key_ref
            assert desired is not None
            authorities = await self._authorities(tls, from_namespace)
            if not authorities:
                raise ServerNotResolved("AdministratorSecretMissing", f"{desired.name} has no key {desired.key}")
        if tls.client_certificate is not None:
            secret = await get_live(self._client, Secret, ObjectKey(from_namespace, tls.client_certificate))
            pair = certificates_authorities.read_key_pair(secret.data) if secret is not None else None
            if pair is None:
                raise ServerNotResolved(
                    "AdministratorSecretMissing",
                    f"Secret {tls.client_certificate} has no matching certificate and key in tls.crt and tls.key",
                )
            certificate = pair.as_client_certificate
        return Verification(TLSMode(tls.mode), authorities), certificate

    async def _authorities(self, tls: ServerTls, from_namespace: str) -> bytes:
        assert tls.ca is not None
        if (desired := tls.ca.secret_key_ref) is not None:
            secret = await get_live(self._client, Secret, ObjectKey(from_namespace, desired.name))
            return b"" if secret is None else secret.data.get(desired.key, b"")
        desired = tls.ca.config_map_key_ref
        assert desired is not None
        config = await get_live(self._client, ConfigMap, ObjectKey(from_namespace, desired.name))
        return b"" if config is None else config.data.get(desired.key, "").encode()

    async def is_permitted(self, obj: Database | DatabaseUser) -> bool:
        """Return True if the reference exists and permits the namespace.

        Hosts permit all.
        """
        reference, guest = obj.spec.server_ref, obj.metadata.namespace
        try:
            if reference is not None:
                await self._address(obj, reference)
                return True
            kind, key = cluster_of(obj)
        except ServerNotResolved:
            return False
        if key.namespace == guest:
            return True
        # Any namespace may create such objects in any number, so none of them may cost a request.
        cluster = await self._client.get_or_none(kind, key)
        return cluster is not None and tenancy.permits(cluster.spec.allowed_namespaces, key.namespace, guest)

    async def namespace_is_terminating(self, obj: Object) -> bool:
        """Return True if the object's namespace is being deleted.

        Its dependencies may go first.
        """
        space = await get_live(self._client, Namespace, ObjectKey("", obj.metadata.namespace))
        return space is None or space.metadata.deletion_timestamp is not None


def host_of(cluster: ObjectKey) -> str:
    """Host name of a cluster's primary."""
    return f"{ClusterNames(cluster).service('rw').name}.{cluster.namespace}.svc"


def cluster_of(obj: Database | DatabaseUser) -> tuple[type[Cluster], ObjectKey]:
    """Kind and key of the cluster of an object without `serverRef`. A label may name either kind.

    Raises:
        ServerNotResolved: the object names none.
    """
    kind, reference, namespace = kind_of(obj.engine), obj.spec.cluster_ref, obj.metadata.namespace
    if reference is not None:
        return kind, ObjectKey(reference.namespace or namespace, reference.name)
    if isinstance(obj, Database):
        return kind, obj.key
    if name := obj.metadata.labels.get(TARGET_LABEL):
        return kind, ObjectKey(namespace, name)
    raise ServerNotResolved(
        "ServerNotFound",
        f"no server is declared: set clusterRef, serverRef, or the label {TARGET_LABEL} to a cluster",
        gone=not _was_provisioned(obj),
    )


def services_of(obj: Database | DatabaseUser) -> list[ObjectKey]:
    """Services that an object refers to."""
    reference = obj.spec.server_ref
    if reference is None or reference.service is None:
        return []
    return [ObjectKey(reference.service.namespace or obj.metadata.namespace, reference.service.name)]


def secrets_of(obj: Database | DatabaseUser) -> list[ObjectKey]:
    """Foreign Secrets that an object refers to."""
    return [named.key for named in referenced_secrets(obj)]


def config_maps_of(obj: Database | DatabaseUser) -> list[ObjectKey]:
    """ConfigMaps that an object refers to."""
    authority = None if obj.spec.server_ref is None else obj.spec.server_ref.tls.ca
    if authority is None or authority.config_map_key_ref is None:
        return []
    return [ObjectKey(obj.metadata.namespace, authority.config_map_key_ref.name)]


def postgresql_clusters_of(obj: Database | DatabaseUser) -> list[ObjectKey]:
    """PostgreSQLCluster of an object, if it has one."""
    return _cluster_keys_of(obj, PostgreSQLCluster)


def mysql_clusters_of(obj: Database | DatabaseUser) -> list[ObjectKey]:
    """MySQLCluster of an object, if it has one."""
    return _cluster_keys_of(obj, MySQLCluster)


def certificates_of(obj: Database | DatabaseUser) -> set[ObjectKey]:
    """Secrets with the certificates between the operator and the object's cluster."""
    clusters = (*postgresql_clusters_of(obj), *mysql_clusters_of(obj))
    return {ClusterNames(cluster).operator_certificate for cluster in clusters}


def _cluster_keys_of(obj: Database | DatabaseUser, kind: type[Cluster]) -> list[ObjectKey]:
    if obj.spec.server_ref is not None:
        return []
    try:
        found, key = cluster_of(obj)
    except ServerNotResolved:
        return []
    return [key] if found is kind or _has_cluster_label(obj) else []


def _has_cluster_label(obj: Database | DatabaseUser) -> TypeGuard[DatabaseUser]:
    """Return True if a label names the cluster.

    It gives a name without a kind.
    """
    return isinstance(obj, DatabaseUser) and obj.spec.cluster_ref is None and obj.spec.server_ref is None


def _was_provisioned(obj: Database | DatabaseUser) -> bool:
    """Return True if the object may have been created on a server.

    Other objects must not wait for a server, since they could then detect that it exists.
    """
    if isinstance(obj, DatabaseUser):
        return bool(obj.status.server)
    return bool(obj.status.connection_string)


def _reference_not_permitted(target: str, from_namespace: str, advice: str, *, gone: bool) -> ServerNotResolved:
    # The message is the same for absent and for not permitted objects, so that it reveals nothing about other
    # namespaces.
    return ServerNotResolved(
        "ReferenceNotPermitted",
        f"{target} does not exist, or does not permit namespace {from_namespace} {advice}",
        gone=gone,
    )


def _text(secret: Secret, key: str) -> str:
    return secret.data.get(key, b"").decode(errors="replace")
