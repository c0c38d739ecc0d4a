"""Keeps the Secrets of a cluster: authorities, certificates, the administrator's and the applications' passwords.

Each Secret is one write, and what it should hold is derived from what the others hold: so a process may end between
any two, and the next one goes on. They are made before the first claim, and owned by the claims from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from steersman.api.core_v1 import PersistentVolumeClaim, Secret
from steersman.client import MergePatch
from steersman.controller import Builder
from steersman.meta import Object, ObjectKey, to_builtins
from steersman_databases.api import Cluster
from steersman_databases.clusters.keyring import (
    Data,
    Keyring,
    KeysWish,
    certificate_secrets,
    credentials_in,
    generate_password,
    keyring,
    pooler_certificate,
    pooler_services,
)
from steersman_databases.clusters.view import declared_pooler
from steersman_databases.controllers.belonging import data_of, waits_for_removal
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.lookup import find, find_live
from steersman_databases.controllers.outcome import Blocked
from steersman_databases.engines import Credentials, Endpoint
from steersman_databases.engines.cluster import ClusterEngine, ClusterView
from steersman_databases.resources.cluster_services import declared_services
from steersman_databases.resources.connections import Connection
from steersman_databases.resources.labels import belongs_to, cluster_labels
from steersman_databases.resources.secrets import cluster_secret, owned_by

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What `ClusterKeys.ensure` left behind: all that opens a cluster.

    Attributes:
        ring: certificates; ``ring.finding`` is the condition ``CertificatesValid``.
        administrator: as the Secret ``<cluster>-admin`` has it; the server may still have another password.
        application: of ``<cluster>-app``, likewise; None where no first database is declared.
        owner_fault: what is wrong with the Secret of ``bootstrap.initdb.secret``, whose former password goes on;
            empty if nothing is.
    """

    ring: Keyring
    administrator: Credentials
    application: Credentials | None
    owner_fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOfCluster:
    """What is there to be opened.

    Attributes:
        claims: for data that are there and wanted: they own the Secrets.
        present: all that there are: these, those that are on their way out, and retired ones, which the same Secrets
            open.
        initialized: a server of ours made the data, so its superuser lets the operator in by certificate and a lost
            password can be replaced. Not so in volumes that were made before there were clusters.
    """

    claims: Sequence[PersistentVolumeClaim] = ()
    present: Sequence[PersistentVolumeClaim] = ()
    initialized: bool = False


def wish_of(view: ClusterView, cluster: Cluster) -> KeysWish:
    """What ``cluster`` declares of its keys."""
    spec, pooler = cluster.spec, declared_pooler(cluster)
    poolers = () if pooler is None else pooler_services(view)[: 2 if pooler.read_only else 1]
    return KeysWish(
        services=[*(plan.key.name for plan in declared_services(view, spec.services)), *poolers],
        names=spec.tls.additional_names,
        given=None if spec.tls.server_secret is None else spec.tls.server_secret.name,
        pooler=pooler is not None,
        application=spec.bootstrap is not None,
    )


class ClusterKeys:
    """Ensures the Secrets of one cluster."""

    def __init__(self, charge: Charge, engine: ClusterEngine) -> None:
        self._charge = charge
        self._client = charge.client
        self._events = charge.events
        self._view = charge.view
        self._names = charge.view.names
        self._labels = cluster_labels(charge.view)
        self._port = engine.port
        self._administrator = engine.administrator

    async def ensure(self, wish: KeysWish, data: DataOfCluster) -> Keys:
        """Every Secret of the cluster, as it should be.

        Raises:
            Blocked: one of that name is not ours, belongs to data that are gone, or opened data that nobody else
                can open; or there is no password for the owner.
        """
        ring = await self._ensure_certificates(wish, data)
        if not wish.pooler:
            await self._forget_pooler()
        administrator = await self._ensure_administrator(data)
        if not wish.application:
            return Keys(ring=ring, administrator=administrator, application=None)
        application, fault = await self._ensure_application(ring, data)
        return Keys(ring=ring, administrator=administrator, application=application, owner_fault=fault)

    # Certificates

    async def present(self, wish: KeysWish, data: DataOfCluster) -> Keyring:
        """The certificates, of which nothing is written: who has others knows nobody by these.

        Raises:
            Blocked: a Secret of that name is not ours, or belongs to data that are gone.
        """
        return (await self._look(wish, data))[0]

    async def _look(self, wish: KeysWish, data: DataOfCluster) -> tuple[Keyring, Mapping[ObjectKey, Secret | None]]:
        found = {key: await self._find(key, data) for key in certificate_secrets(self._view, wish)}
        given = None if wish.given is None else await self._given(wish.given)
        present = {key: secret.data for key, secret in found.items() if secret is not None}
        return keyring(self._view, wish, present, given, self._charge.clock.now()), found

    async def _ensure_certificates(self, wish: KeysWish, data: DataOfCluster) -> Keyring:
        ring, found = await self._look(wish, data)
        present = {key: secret.data for key, secret in found.items() if secret is not None}
        for key, wanted in ring.data.items():
            # The authorities come first: what is cut off after them is signed again by the same ones.
            await self._write(key, found[key], wanted, data)
            if key in present and present[key] != wanted:
                self._events.normal(self._charge.cluster, *_renewal(key, present[key], wanted))
        return ring

    # Passwords

    async def _ensure_administrator(self, data: DataOfCluster) -> Credentials:
        key = self._names.administrator_secret
        found = await self._find(key, data)
        present = credentials_in(found.data) if found is not None else None
        if present is None and data.claims and not data.initialized:
            raise Blocked(
                "Failed",
                "AdministratorSecretMissing",
                f"Secret {key.name} with username and password of the administrator is missing or incomplete, "
                f"and nothing else opens the data in {_listed(data.claims)}",
            )
        credentials = present or Credentials(self._administrator, generate_password())
        wanted = {"username": credentials.username.encode(), "password": credentials.password.encode()}
        await self._repair(key, found, wanted, data, password_is_new=present is None)
        return credentials

    async def _ensure_application(self, ring: Keyring, data: DataOfCluster) -> tuple[Credentials, str]:
        """The owner, and what is wrong with the Secret that was given."""
        key = self._names.application_secret
        found = await self._find(key, data)
        present = found.data.get("password", b"").decode(errors="replace") if found is not None else ""
        given, fault = await self._given_password(present)
        password = given or present or generate_password()
        credentials = Credentials(self._view.initial.owner, password)
        wanted = self._connection(credentials, ring.bundle)
        await self._repair(key, found, wanted, data, password_is_new=not (given or present))
        return credentials, fault

    async def _given_password(self, present: str) -> tuple[str, str]:
        """The password of ``bootstrap.initdb.secret``, and what is wrong with that Secret.

        Both are empty where none is named, or it is not there any more. Raises Blocked where there is no other.
        """
        name, owner = self._view.initial.secret, self._view.initial.owner
        data = None if name is None else await self._given(name)
        if name is None or (data is None and present):
            return "", ""
        credentials = None if data is None else credentials_in({"username": owner.encode(), **data})
        if credentials is not None and credentials.username == owner:
            return credentials.password, ""
        fault = f"Secret {name} needs username: {owner}, and a password, for the owner"
        if not present:
            raise Blocked("Failed", "OwnerSecretInvalid", fault)
        return "", fault

    def _connection(self, credentials: Credentials, bundle: str) -> dict[str, bytes]:
        service, engine = self._names.service("rw"), self._view.engine
        # Without svc, a namespace that is called as a top-level domain is would lead to the internet.
        return Connection(
            engine=engine,
            scheme=engine,
            endpoint=Endpoint(f"{service.name}.{service.namespace}.svc", self._port),
            credentials=credentials,
            database=self._view.initial.database,
            authorities=bundle.encode(),
            verified=True,
        ).entries()

    # Reading and writing

    async def _find(self, key: ObjectKey, data: DataOfCluster) -> Secret | None:
        secret = await find(self._client, Secret, key)
        if secret is None:
            return None
        self._charge.require_labels(secret, data.present)
        if await data_of(self._charge, secret, data.present) == "Gone":
            raise waits_for_removal(secret)
        return secret

    async def _forget_pooler(self) -> None:
        """Deletes what poolers logged in with: it opens no data, and is signed again for the next ones."""
        secret = await self._client.get_or_none(Secret, pooler_certificate(self._view))
        if secret is not None and belongs_to(secret, self._view) and secret.metadata.deletion_timestamp is None:
            await self._charge.delete(Secret, secret)

    async def _given(self, name: str) -> Data | None:
        """What a Secret of somebody else's holds. It bears none of our labels, so it is not in the cache."""
        secret = await find_live(self._client, Secret, ObjectKey(self._view.key.namespace, name))
        return None if secret is None else secret.data

    async def _repair(
        self, key: ObjectKey, found: Secret | None, wanted: Data, data: DataOfCluster, *, password_is_new: bool
    ) -> None:
        # Entries that somebody added are theirs.
        secret = await self._write(key, found, {**(found.data if found is not None else {}), **wanted}, data)
        if found is not None and secret.data != found.data:
            note = f"completed Secret {key.name}"
            if password_is_new:
                note += " with a new password: its readers must read it again"
            self._events.normal(self._charge.cluster, "SecretRepaired", note)

    async def _write(self, key: ObjectKey, found: Secret | None, wanted: Data, data: DataOfCluster) -> Secret:
        if found is None:
            secret = await self._client.create(cluster_secret(key, self._labels, wanted, data.claims))
            if data.initialized:
                note = f"made Secret {key.name} anew: it was gone. Its readers must read it again"
                self._events.warning(self._charge.cluster, "SecretRepaired", note)
            else:
                self._charge.created(Secret, key)
            return secret
        found = await self._charge.label_again(Secret, found, self._labels)
        changes: dict[str, Any] = {}
        if wanted != found.data:
            changes["data"] = to_builtins(wanted) | {k: None for k in found.data if k not in wanted}
        owners = {o.uid for o in found.metadata.owner_references}
        if strangers := [c for c in data.claims if c.metadata.uid not in owners]:
            references = [*found.metadata.owner_references, *(owned_by(c) for c in strangers)]
            changes["metadata"] = {"ownerReferences": to_builtins(references)}
        if "data" in changes and found.immutable and "tls.crt" in wanted:
            # Were this cut in between, it would be signed anew: nobody but its servers has this one.
            await self._charge.make_room(Secret, found)
            return await self._client.create(cluster_secret(key, self._labels, wanted, data.claims))
        return await self._change(found, changes) if changes else found

    async def _change(self, secret: Secret, changes: Mapping[str, Any]) -> Secret:
        # Not applied by force: what somebody has just written must not be overwritten by what we read before.
        metadata = {**changes.get("metadata", {}), "resourceVersion": secret.metadata.resource_version}
        return await self._client.patch(Secret, secret.key, MergePatch({**changes, "metadata": metadata}))


def _renewal(key: ObjectKey, former: Data, wanted: Data) -> tuple[str, str]:
    """Reason and words of the Event for a Secret with certificates that changed."""
    if "tls.crt" not in wanted:
        return "AuthoritiesChanged", f"Secret {key.name}: a successor is trusted, signs, or the former is forgotten"
    if former.get("tls.crt") != wanted["tls.crt"]:
        return "CertificateRenewed", f"Secret {key.name} has a new certificate"
    return "SecretRepaired", f"completed Secret {key.name}"


def _listed(claims: Sequence[PersistentVolumeClaim]) -> str:
    return ", ".join(f"PersistentVolumeClaim {c.metadata.name}" for c in claims)


def permit(builder: Builder[T]) -> Builder[T]:
    """Declares what `ClusterKeys` does at the API server."""
    return builder.needs(Secret, "get", "create", "patch", "delete").needs(PersistentVolumeClaim, "get")
