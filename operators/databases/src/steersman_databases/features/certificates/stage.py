"""Secrets of a cluster: authorities, certificates and passwords.

The passwords are the administrator's and the application's. Each Secret is one write, and its content is derived
from the other Secrets. So a process may end between two writes, and the next one continues. The Secrets are
created before the first PVC. The cluster and the PVCs own them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from steersman.api.apply import core
from steersman.api.core_v1 import PersistentVolumeClaim, Secret
from steersman.client import MergePatch
from steersman.controller import Builder
from steersman.meta import Object, ObjectKey, to_builtins
from steersman_databases.api import Cluster
from steersman_databases.cluster.declared import pooler_of
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.data_ownership import data_state_of, wait_for_garbage_collection
from steersman_databases.core.labels import belongs_to, data_labels
from steersman_databases.core.outcome import ReconcileBlocked
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_databases.engines.cluster_engine import ClusterEngine, DeclaredCluster
from steersman_databases.features.certificates.model import (
    CertificateRequest,
    CertificateSet,
    Data,
    build_certificate_set,
    certificate_secrets,
    credentials_in,
    generate_password,
    pooler_certificate,
    pooler_services,
)
from steersman_databases.features.services.specs import declared_services
from steersman_databases.specs.data_secrets import DATA_IDENTITY_ANNOTATION, cluster_secret, data_owners
from steersman_databases.sql.connection_secret import ConnectionDetails

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCredentials:
    """Result of `SecretsReconciler.ensure`: all credentials of a cluster.

    Attributes:
        certificates: `certificates.condition` is the condition `CertificatesValid`.
        administrator: from the Secret `<cluster>-admin`. The server may still have another password.
        application: from the Secret `<cluster>-app`, or None without a declared first database.
        owner_secret_error: problem of the Secret `bootstrap.initdb.secret`, whose previous password stays valid.
            Empty
            if there is none.
    """

    certificates: CertificateSet
    administrator: SqlCredentials
    application: SqlCredentials | None
    owner_secret_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterData:
    """PVCs and state of the data that the Secrets protect.

    Attributes:
        pvcs: PVCs of present and desired data. They own the Secrets.
        pvcs_present: all PVCs, including terminating and retired ones with the same Secrets.
        is_initialized: a server of this operator created the data. Then its superuser accepts the operator's
            certificate, and a lost password can be replaced. Volumes from before clusters existed do not allow this.
        identity: identity of the data that a primary serves; empty without a primary.
        is_new: no volume has data, so that the identity of previous data does not apply.
    """

    pvcs: Sequence[PersistentVolumeClaim] = ()
    pvcs_present: Sequence[PersistentVolumeClaim] = ()
    is_initialized: bool = False
    identity: str = ""
    is_new: bool = False

    def changed_annotations(self, present: Mapping[str, str]) -> Mapping[str, str | None]:
        """Return the changes of a Secret's annotations. None removes one."""
        if self.identity and present.get(DATA_IDENTITY_ANNOTATION) != self.identity:
            return {DATA_IDENTITY_ANNOTATION: self.identity}
        return {DATA_IDENTITY_ANNOTATION: None} if self.is_new and DATA_IDENTITY_ANNOTATION in present else {}


def certificate_request(declared: DeclaredCluster, cluster: Cluster) -> CertificateRequest:
    """Return the certificates that a cluster declares."""
    spec, pooler = cluster.spec, pooler_of(cluster)
    poolers = () if pooler is None else pooler_services(declared)[: 2 if pooler.read_only else 1]
    return CertificateRequest(
        services=[*(plan.key.name for plan in declared_services(declared, spec.services)), *poolers],
        additional_names=spec.tls.additional_names,
        custom_secret=None if spec.tls.server_secret is None else spec.tls.server_secret.name,
        pooler=pooler is not None,
        backup=spec.backup is not None,
        application=declared.has_bootstrap_database,
    )


class SecretsReconciler:
    """Ensures the Secrets of one cluster."""

    def __init__(self, context: ClusterContext, engine: ClusterEngine) -> None:
        self._context = context
        self._client = context.client
        self._events = context.events
        self._declared = context.declared
        self._names = context.declared.names
        self._labels = data_labels(context.declared)
        self._port = engine.port
        self._administrator = engine.administrator

    async def ensure(self, request: CertificateRequest, data: ClusterData) -> ClusterCredentials:
        """Ensure each Secret of the cluster.

        Raises:
            ReconcileBlocked: a Secret of that name is foreign, belongs to deleted data, or is missing although only
                its
                password opens the data. Or the owner has no password.
        """
        certificates = await self._ensure_certificates(request, data)
        if not request.pooler:
            await self._delete_client_certificate(pooler_certificate(self._declared))
        if not request.backup:
            await self._delete_client_certificate(self._names.backup_client_certificate)
        administrator = await self._ensure_administrator(data)
        if not request.application:
            return ClusterCredentials(certificates=certificates, administrator=administrator, application=None)
        application, owner_error = await self._ensure_application(certificates, data)
        return ClusterCredentials(
            certificates=certificates,
            administrator=administrator,
            application=application,
            owner_secret_error=owner_error,
        )

    # Certificates

    async def load_certificates(self, request: CertificateRequest, data: ClusterData) -> CertificateSet:
        """Return the certificates without writing them.

        If Secrets are missing, servers do not accept the returned certificates.

        Raises:
            ReconcileBlocked: a Secret of that name is foreign, or belongs to deleted data.
        """
        return (await self._compute(request, data))[0]

    async def _compute(
        self, request: CertificateRequest, data: ClusterData
    ) -> tuple[CertificateSet, Mapping[ObjectKey, Secret | None]]:
        found = {key: await self._find(key, data) for key in certificate_secrets(self._declared, request)}
        custom = None if request.custom_secret is None else await self._read_user_secret(request.custom_secret)
        present = {key: secret.data for key, secret in found.items() if secret is not None}
        return build_certificate_set(self._declared, request, present, custom, self._context.clock.now()), found

    async def _ensure_certificates(self, request: CertificateRequest, data: ClusterData) -> CertificateSet:
        certificates, found = await self._compute(request, data)
        present = {key: secret.data for key, secret in found.items() if secret is not None}
        for key, desired in certificates.data.items():
            # The authorities come first: after an interruption the same ones sign again.
            await self._write(key, found[key], desired, data)
            if key in present and present[key] != desired:
                self._events.normal(self._context.cluster, *_rotation_event(key, present[key], desired))
        return certificates

    # Passwords

    async def _ensure_administrator(self, data: ClusterData) -> SqlCredentials:
        key = self._names.administrator_secret
        found = await self._find(key, data)
        present = credentials_in(found.data) if found is not None else None
        if present is None and data.pvcs and not data.is_initialized:
            raise ReconcileBlocked(
                "Failed",
                "AdministratorSecretMissing",
                f"Secret {key.name} with username and password of the administrator is missing or incomplete. "
                f"Without it the data in {_names_of(data.pvcs)} are not accessible",
            )
        credentials = present or SqlCredentials(self._administrator, generate_password())
        desired = {"username": credentials.username.encode(), "password": credentials.password.encode()}
        await self._write_credentials(key, found, desired, data, password_is_new=present is None)
        return credentials

    async def _ensure_application(
        self, certificates: CertificateSet, data: ClusterData
    ) -> tuple[SqlCredentials, str]:
        """Return the owner's credentials, and a problem of the user's Secret."""
        key = self._names.application_secret
        found = await self._find(key, data)
        present = found.data.get("password", b"").decode(errors="replace") if found is not None else ""
        user_password, owner_error = await self._user_password(present)
        password = user_password or present or generate_password()
        credentials = SqlCredentials(self._declared.bootstrap.owner, password)
        desired = self._connection(credentials, certificates.bundle)
        await self._write_credentials(key, found, desired, data, password_is_new=not (user_password or present))
        return credentials, owner_error

    async def _user_password(self, present: str) -> tuple[str, str]:
        """Return the password of `bootstrap.initdb.secret`, and its problem.

        Both are empty if no Secret is declared or it was deleted.

        Raises:
            ReconcileBlocked: there is no other password.
        """
        name, owner = self._declared.bootstrap.secret, self._declared.bootstrap.owner
        data = None if name is None else await self._read_user_secret(name)
        if name is None or (data is None and present):
            return "", ""
        credentials = None if data is None else credentials_in({"username": owner.encode(), **data})
        if credentials is not None and credentials.username == owner:
            return credentials.password, ""
        owner_error = f"Secret {name} needs username: {owner}, and a password"
        if not present:
            raise ReconcileBlocked("Failed", "OwnerSecretInvalid", owner_error)
        return "", owner_error

    def _connection(self, credentials: SqlCredentials, bundle: str) -> dict[str, bytes]:
        service, engine = self._names.service("rw"), self._declared.engine
        # Without svc, a namespace with the name of a top-level domain would resolve on the internet.
        return ConnectionDetails(
            engine=engine,
            scheme=engine,
            endpoint=ServerEndpoint(f"{service.name}.{service.namespace}.svc", self._port),
            credentials=credentials,
            database=self._declared.bootstrap.database,
            authorities=bundle.encode(),
            verifies_server=True,
        ).entries()

    # Reading and writing

    async def _find(self, key: ObjectKey, data: ClusterData) -> Secret | None:
        secret = await get_cached_or_live(self._client, Secret, key)
        if secret is None:
            return None
        self._context.require_labels(secret, data.pvcs_present)
        if await data_state_of(self._context, secret, data.pvcs_present) == "Gone":
            raise wait_for_garbage_collection(secret)
        return secret

    async def _delete_client_certificate(self, key: ObjectKey) -> None:
        """Delete a client certificate that is not needed any more. It protects no data, and can be issued again."""
        secret = await self._client.get_or_none(Secret, key)
        if secret is not None and belongs_to(secret, self._declared) and secret.metadata.deletion_timestamp is None:
            await self._context.delete(Secret, secret)

    async def _read_user_secret(self, name: str) -> Data | None:
        """Return the content of a user's Secret.

        It lacks the operator's labels, so it is not in the cache.
        """
        secret = await get_live(self._client, Secret, ObjectKey(self._declared.key.namespace, name))
        return None if secret is None else secret.data

    async def _write_credentials(
        self, key: ObjectKey, found: Secret | None, desired: Data, data: ClusterData, *, password_is_new: bool
    ) -> None:
        # Entries that users added stay.
        secret = await self._write(key, found, {**(found.data if found is not None else {}), **desired}, data)
        if found is not None and secret.data != found.data:
            note = f"completed Secret {key.name}"
            if password_is_new:
                note += " with a new password. Restart applications that use it"
            self._events.normal(self._context.cluster, "SecretRestored", note)

    async def _write(self, key: ObjectKey, found: Secret | None, desired: Data, data: ClusterData) -> Secret:
        if found is None:
            secret = await self._client.create(self._desired(key, desired, data))
            # Client certificates are first issued when poolers or backups are declared.
            is_new = key in (pooler_certificate(self._declared), self._names.backup_client_certificate)
            if data.is_initialized and not is_new:
                note = f"recreated the deleted Secret {key.name}. Restart applications that use it"
                self._events.warning(self._context.cluster, "SecretRestored", note)
            else:
                self._context.emit_created(Secret, key)
            return secret
        found = await self._context.restore_labels(Secret, found, self._labels)
        changes: dict[str, Any] = {}
        if desired != found.data:
            changes["data"] = to_builtins(desired) | {k: None for k in found.data if k not in desired}
        metadata: dict[str, Any] = {}
        owners = {o.uid for o in found.metadata.owner_references}
        if missing := [o for o in data_owners(self._declared, data.pvcs) if o.uid not in owners]:
            metadata["ownerReferences"] = to_builtins([*found.metadata.owner_references, *missing])
        if annotations := data.changed_annotations(found.metadata.annotations):
            metadata["annotations"] = annotations
        if metadata:
            changes["metadata"] = metadata
        if "data" in changes and found.immutable and "tls.crt" in desired:
            # After an interruption here it would be issued again, because only the servers have this one.
            await self._context.delete_for_recreation(Secret, found)
            return await self._client.create(self._desired(key, desired, data))
        return await self._change(found, changes) if changes else found

    def _desired(self, key: ObjectKey, desired: Data, data: ClusterData) -> core.Secret:
        owners = data_owners(self._declared, data.pvcs)
        annotations = {DATA_IDENTITY_ANNOTATION: data.identity} if data.identity else {}
        return cluster_secret(key, self._labels, desired, owners, annotations)

    async def _change(self, secret: Secret, changes: Mapping[str, Any]) -> Secret:
        # Not applied by force: a concurrent write must not be overwritten by older data.
        metadata = {**changes.get("metadata", {}), "resourceVersion": secret.metadata.resource_version}
        return await self._client.patch(Secret, secret.key, MergePatch({**changes, "metadata": metadata}))


def _rotation_event(key: ObjectKey, previous: Data, desired: Data) -> tuple[str, str]:
    """Return reason and message of the Event for a changed Secret."""
    if "tls.crt" not in desired:
        return "CARotated", f"Secret {key.name}: {_rotation_step(previous, desired)}"
    if previous.get("tls.crt") != desired["tls.crt"]:
        return "CertificateRenewed", f"Secret {key.name} has a new certificate"
    return "SecretRestored", f"completed Secret {key.name}"


def _rotation_step(previous: Data, desired: Data) -> str:
    """Return the rotation step between two contents of the CA Secret."""
    if any(previous.get(name) != desired[name] for name in ("server.crt", "client.crt")):
        return "a new CA signs certificates"
    if any(name.endswith("-next.crt") and name not in previous for name in desired):
        return "a new CA was added to the trust bundle"
    return "an expired CA was removed from the trust bundle"


def _names_of(pvcs: Sequence[PersistentVolumeClaim]) -> str:
    return ", ".join(f"PVC {c.metadata.name}" for c in pvcs)


def permit(builder: Builder[T]) -> Builder[T]:
    """Declare the necessary permissions at the API server."""
    return builder.needs(Secret, "get", "create", "patch", "delete").needs(PersistentVolumeClaim, "get")
