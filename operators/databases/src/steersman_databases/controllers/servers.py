"""From a reference to the server behind it: where it listens, how to log in, how to know that it is the one."""

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
from steersman_databases.api.named_secrets import named_secrets
from steersman_databases.api.references import AdministratorReference, ServerReference, ServerTls
from steersman_databases.clusters import certificates, tenancy
from steersman_databases.clusters.view import engine_of, kind_of
from steersman_databases.controllers.lookup import find, find_live
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.cluster_names import OPERATOR, SUPERUSER, ClusterNames
from steersman_databases.engines.errors import InvalidName
from steersman_databases.engines.port import Contents
from steersman_databases.engines.server import (
    ClientCertificate,
    Endpoint,
    Login,
    Server,
    TLSMode,
    Verification,
)

T = TypeVar("T", bound=Object)

ContentsOf = Callable[[str], Contents]
"""Finds what is inside servers of an engine, by the engine's name."""


@dataclass(frozen=True, slots=True)
class Located:
    """A server that was found. ``home`` is its namespace; None for one that is not in this Kubernetes cluster."""

    server: Server
    contents: Contents
    home: str | None


class NotLocated(Exception):
    """There is no server to work on, or not yet. ``gone``: it will not come back for this object.

    ``reason`` is one of ``ON_ANY_SERVER``.
    """

    def __init__(self, reason: str, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.gone = gone


class Servers:
    """Finds the servers that objects refer to.

    Args:
        client: of the controller; Secrets and ConfigMaps of others are read live, since none of them is cached.
        contents: finds an engine; for others to use as well.
        clock: dates the certificates of the superuser.
    """

    def __init__(self, client: CachedClient, contents: ContentsOf, clock: Clock) -> None:
        self._client = client
        self.contents = contents
        self._clock = clock

    async def locate(self, of: Database | DatabaseUser) -> Located:
        """The server that an object refers to.

        Raises:
            NotLocated: it is missing, not ready, or does not let the object in.
        """
        if of.spec.server_ref is not None:
            return await self._foreign(of, of.spec.server_ref)
        kind, key = cluster_of(of)
        if _is_labelled(of):
            kind = await self._labelled(key, of.spec.engine)
        return await self._of_cluster(of, kind, key)

    async def _labelled(self, key: ObjectKey, engine: str | None) -> type[Cluster]:
        """The kind of the cluster that a label names."""
        every: tuple[type[Cluster], ...] = (PostgreSQLCluster, MySQLCluster)
        kinds = [kind for kind in every if engine in (None, engine_of(kind))]
        found = [kind for kind in kinds if await find(self._client, kind, key) is not None]
        if len(found) > 1:
            both = " and ".join(f"a {kind.api_resource.kind}" for kind in found)
            raise NotLocated(
                "ServerNotFound",
                f"there are {both} called {key.name}, and the label {TARGET_LABEL} does not say which is meant:"
                " delete the one that is not, or make the object anew with engine or clusterRef",
            )
        if not found:
            wanted = " or ".join(kind.api_resource.kind for kind in kinds)
            raise NotLocated("ServerNotFound", f"there is no {wanted} {key.name}", gone=True)
        return found[0]

    async def _of_cluster(self, of: Database | DatabaseUser, kind: type[Cluster], key: ObjectKey) -> Located:
        cluster = await find(self._client, kind, key)
        guest, called = of.metadata.namespace, kind.api_resource.kind
        if cluster is None or not tenancy.lets_in(cluster.spec.allowed_namespaces, key.namespace, guest):
            if key.namespace == guest:
                raise NotLocated("ServerNotFound", f"there is no {called} {key.name}", gone=True)
            gone = cluster is None or not _was_let_in(of)
            raise _not_permitted(f"{called} {key}", guest, "by spec.allowedNamespaces", gone=gone)
        if cluster.metadata.deletion_timestamp is not None:
            raise NotLocated("ServerNotFound", f"{called} {key} is being deleted", gone=True)
        if cluster.spec.hibernated:
            raise NotLocated("ServerNotReady", f"{called} {key} is hibernated")
        if not cluster.status.primary:
            raise NotLocated("ServerNotReady", f"{called} {key} has no primary yet")
        engine = engine_of(kind)
        return Located(await self.opened(called, engine, key), self.contents(engine), key.namespace)

    async def own(self, cluster: ClusterView) -> Located:
        """The primary of a cluster, for the cluster's own matters.

        Raises:
            NotLocated: its certificates are not there.
        """
        server = await self.opened(cluster.kind, cluster.engine, cluster.key)
        return Located(server, self.contents(cluster.engine), cluster.key.namespace)

    async def opened(self, kind: str, engine: str, cluster: ObjectKey) -> Server:
        """The primary of a cluster of ours, as the operator logs in to it.

        Raises:
            NotLocated: its certificates are not there.
        """
        names = ClusterNames(cluster)
        held = [await find(self._client, Secret, k) for k in (names.operator_certificate, names.authorities)]
        login = certificates.pair_in(held[0].data) if held[0] else None
        authorities = certificates.from_data(held[1].data) if held[1] else None
        if held[0] is None or login is None or authorities is None:
            raise NotLocated("ServerNotReady", f"{kind} {cluster} has no certificates yet")

        def elevate() -> Login:
            pair = certificates.signed_once(SUPERUSER, authorities, self._clock.now())
            return Login(SUPERUSER, certificate=pair.as_client)

        return Server(
            engine=engine,
            endpoint=Endpoint(host_of(cluster), self.contents(engine).port),
            login=Login(OPERATOR, certificate=login.as_client),
            verification=Verification(TLSMode.VERIFY_FULL, held[0].data.get("ca.crt", b"")),
            elevate=elevate,
        )

    async def _foreign(self, of: Database | DatabaseUser, reference: ServerReference) -> Located:
        contents, guest = self.contents(of.engine), of.metadata.namespace
        host, home = await self._address(of, reference)
        if reference.maintenance_database is not None:
            try:
                contents.check_name("serverRef.maintenanceDatabase", reference.maintenance_database)
            except InvalidName as error:
                raise NotLocated("InvalidName", str(error)) from None
        secret = await self._administrator(of, reference.administrator)
        verification, certificate = await self._verified(reference.tls, guest)
        server = Server(
            engine=of.engine,
            endpoint=Endpoint(host, reference.port or contents.port),
            login=Login(
                _text(secret, reference.administrator.username_key),
                _text(secret, reference.administrator.password_key),
                certificate,
            ),
            verification=verification,
            maintenance_database=reference.maintenance_database or "postgres",
        )
        return Located(server, contents, home)

    async def _address(self, of: Database | DatabaseUser, reference: ServerReference) -> tuple[str, str | None]:
        guest = of.metadata.namespace
        if reference.service is None:
            return reference.host or "", None
        key = ObjectKey(reference.service.namespace or guest, reference.service.name)
        service = await self._client.get_or_none(metadata_only(Service), key)
        if service is None and key.namespace == guest:
            raise NotLocated("ServerNotFound", f"there is no Service {key.name}")
        if service is None or not tenancy.lets_in_by_annotation(service, guest):
            raise _not_permitted(f"Service {key}", guest, "by an annotation", gone=not _was_let_in(of))
        # In a namespace named as a top-level domain is, the name without svc could be one of the internet.
        return f"{key.name}.{key.namespace}.svc", key.namespace

    async def _administrator(self, of: Database | DatabaseUser, reference: AdministratorReference) -> Secret:
        guest = of.metadata.namespace
        key = ObjectKey(reference.namespace or guest, reference.name)
        secret = await find_live(self._client, Secret, key)
        if key.namespace != guest and (secret is None or not tenancy.lets_in_by_annotation(secret, guest)):
            raise _not_permitted(f"Secret {key}", guest, "by an annotation", gone=not _was_let_in(of))
        if secret is None:
            raise NotLocated("AdministratorSecretMissing", f"there is no Secret {key.name}")
        for name in (reference.username_key, reference.password_key):
            if not secret.data.get(name):
                raise NotLocated("AdministratorSecretMissing", f"Secret {key.name} has no key {name}")
            if b"\0" in secret.data[name]:
                told = f"Secret {key.name} has a NUL character in its key {name}"
                raise NotLocated("AdministratorSecretMissing", told)
        return secret

    async def _verified(self, tls: ServerTls, guest: str) -> tuple[Verification, ClientCertificate | None]:
        authorities = certificate = None
        if tls.ca is not None:
            wanted = tls.ca.secret_key_ref or tls.ca.config_map_key_ref
            assert wanted is not None
            authorities = await self._authorities(tls, guest)
            if not authorities:
                raise NotLocated("AdministratorSecretMissing", f"there is no key {wanted.key} in {wanted.name}")
        if tls.client_certificate is not None:
            secret = await find_live(self._client, Secret, ObjectKey(guest, tls.client_certificate))
            pair = certificates.pair_in(secret.data) if secret is not None else None
            if pair is None:
                raise NotLocated(
                    "AdministratorSecretMissing",
                    f"Secret {tls.client_certificate} holds no certificate with its key in tls.crt and tls.key",
                )
            certificate = pair.as_client
        return Verification(TLSMode(tls.mode), authorities), certificate

    async def _authorities(self, tls: ServerTls, guest: str) -> bytes:
        assert tls.ca is not None
        if (wanted := tls.ca.secret_key_ref) is not None:
            secret = await find_live(self._client, Secret, ObjectKey(guest, wanted.name))
            return b"" if secret is None else secret.data.get(wanted.key, b"")
        wanted = tls.ca.config_map_key_ref
        assert wanted is not None
        config = await find_live(self._client, ConfigMap, ObjectKey(guest, wanted.name))
        return b"" if config is None else config.data.get(wanted.key, "").encode()

    async def lets_in(self, of: Database | DatabaseUser) -> bool:
        """Whether the cluster or Service that an object names is there, and lets in its namespace; a host does."""
        reference, guest = of.spec.server_ref, of.metadata.namespace
        try:
            if reference is not None:
                await self._address(of, reference)
                return True
            kind, key = cluster_of(of)
        except NotLocated:
            return False
        if key.namespace == guest:
            return True
        # Strangers may make any number of such objects: none of them costs a request.
        cluster = await self._client.get_or_none(kind, key)
        return cluster is not None and tenancy.lets_in(cluster.spec.allowed_namespaces, key.namespace, guest)

    async def ends_with_its_namespace(self, of: Object) -> bool:
        """Whether the namespace of an object is being deleted: what the object needs may be gone before it."""
        space = await find_live(self._client, Namespace, ObjectKey("", of.metadata.namespace))
        return space is None or space.metadata.deletion_timestamp is not None


def host_of(cluster: ObjectKey) -> str:
    """Where the primary of a cluster of ours is."""
    return f"{ClusterNames(cluster).service('rw').name}.{cluster.namespace}.svc"


def cluster_of(of: Database | DatabaseUser) -> tuple[type[Cluster], ObjectKey]:
    """Kind and key of the cluster that an object without ``serverRef`` is on; a label's may be of the other kind.

    Raises:
        NotLocated: it names none.
    """
    kind, reference, namespace = kind_of(of.engine), of.spec.cluster_ref, of.metadata.namespace
    if reference is not None:
        return kind, ObjectKey(reference.namespace or namespace, reference.name)
    if isinstance(of, Database):
        return kind, of.key
    if name := of.metadata.labels.get(TARGET_LABEL):
        return kind, ObjectKey(namespace, name)
    raise NotLocated(
        "ServerNotFound",
        f"no server is named: set clusterRef, serverRef, or the label {TARGET_LABEL} to a cluster",
        gone=not _was_let_in(of),
    )


def services_of(of: Database | DatabaseUser) -> list[ObjectKey]:
    """The Services that an object refers to."""
    reference = of.spec.server_ref
    if reference is None or reference.service is None:
        return []
    return [ObjectKey(reference.service.namespace or of.metadata.namespace, reference.service.name)]


def secrets_of(of: Database | DatabaseUser) -> list[ObjectKey]:
    """The Secrets that an object refers to, and that somebody else makes."""
    return [named.key for named in named_secrets(of)]


def config_maps_of(of: Database | DatabaseUser) -> list[ObjectKey]:
    """The ConfigMaps that an object refers to."""
    authority = None if of.spec.server_ref is None else of.spec.server_ref.tls.ca
    if authority is None or authority.config_map_key_ref is None:
        return []
    return [ObjectKey(of.metadata.namespace, authority.config_map_key_ref.name)]


def postgresql_clusters_of(of: Database | DatabaseUser) -> list[ObjectKey]:
    """The cluster of PostgreSQL's that an object is on, if it is one."""
    return _clusters_of(of, PostgreSQLCluster)


def mysql_clusters_of(of: Database | DatabaseUser) -> list[ObjectKey]:
    """The cluster of MySQL's that an object is on, if it is one."""
    return _clusters_of(of, MySQLCluster)


def certificates_of(of: Database | DatabaseUser) -> set[ObjectKey]:
    """The Secrets by which the operator and the cluster that an object is on know each other."""
    clusters = (*postgresql_clusters_of(of), *mysql_clusters_of(of))
    return {ClusterNames(cluster).operator_certificate for cluster in clusters}


def _clusters_of(of: Database | DatabaseUser, kind: type[Cluster]) -> list[ObjectKey]:
    if of.spec.server_ref is not None:
        return []
    try:
        found, key = cluster_of(of)
    except NotLocated:
        return []
    return [key] if found is kind or _is_labelled(of) else []


def _is_labelled(of: Database | DatabaseUser) -> TypeGuard[DatabaseUser]:
    """Whether a label names its cluster: by its name alone."""
    return isinstance(of, DatabaseUser) and of.spec.cluster_ref is None and of.spec.server_ref is None


def _was_let_in(of: Database | DatabaseUser) -> bool:
    """Whether something may have been made for it on a server: no other may wait, and so learn that one is there."""
    if isinstance(of, DatabaseUser):
        return bool(of.status.server)
    return bool(of.status.connection_string)


def _not_permitted(target: str, guest: str, how: str, *, gone: bool) -> NotLocated:
    # The same words for what is not there and for what does not let in: nobody learns what other namespaces hold.
    return NotLocated(
        "ReferenceNotPermitted", f"{target} does not exist, or does not let in namespace {guest} {how}", gone=gone
    )


def _text(secret: Secret, key: str) -> str:
    return secret.data.get(key, b"").decode(errors="replace")
