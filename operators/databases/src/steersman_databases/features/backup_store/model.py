"""Resolution of a ``BackupStore`` and its Secrets to its access."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict

from steersman.api.core_v1 import Secret
from steersman.cache import CachedClient
from steersman.meta import ObjectKey
from steersman_databases.api import BackupStore
from steersman_databases.api.backups.backup_common import ArchiveSettings, StoreReference
from steersman_databases.api.group import GROUP, EngineName
from steersman_databases.api.secret_references import referenced_secrets
from steersman_databases.core.cached_reads import get_cached_or_live
from steersman_databases.engines.connection.input_limits import MAX_STORE_ENTRY_BYTES
from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem, key_fingerprint
from steersman_databases.features.backup_store.identity import identity_annotations
from steersman_databases.features.backup_store.secret_reader import SecretReader
from steersman_databases.sql.tenancy import permits

STORE_LABEL = f"{GROUP}/backup-store"
"""Label of a generated encryption key's Secret: the ``BackupStore``."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


async def find_store(client: CachedClient, reference: StoreReference, namespace: str) -> BackupStore:
    """Return the ``BackupStore`` that an object refers to.

    A store that does not permit the namespace and one that does not exist give the same message.

    Args:
        namespace: namespace of the object with the reference.

    Raises:
        StoreProblem: the store does not exist, or does not permit the namespace (``StoreNotFound``).
    """
    key = ObjectKey(reference.namespace or namespace, reference.name)
    store = await get_cached_or_live(client, BackupStore, key)
    if store is not None and permits(store.spec.allowed_namespaces, key.namespace, namespace):
        return store
    if key.namespace == namespace:
        raise StoreProblem("StoreNotFound", f"BackupStore {key.name} does not exist. Create it, or correct storeRef")
    raise StoreProblem(
        "StoreNotFound",
        f"BackupStore {key} does not exist or does not permit namespace {namespace}. Correct storeRef, or add the"
        " namespace to spec.allowedNamespaces of the store",
    )


async def load_access(secrets: SecretReader, store: BackupStore) -> StoreAccess:
    """Read the Secrets of a store and return the access to it.

    Raises:
        StoreProblem: a Secret does not exist (``SecretNotFound``) or has unusable content (``SecretInvalid``), or the
            store declares what is not supported (``UnsupportedStore``) or incomplete (``InvalidIdentity``).
    """
    names = {each.key for each in referenced_secrets(store)}
    if (key_secret := store.key_secret) is not None:
        names.add(ObjectKey(store.metadata.namespace, key_secret.name))
    found = {key: await secrets.read(key) for key in sorted(names, key=str)}
    return resolve_access(store, {key.name: secret for key, secret in found.items() if secret is not None})


async def store_document(
    secrets: SecretReader,
    store: BackupStore,
    *,
    engine: EngineName,
    path: str,
    cluster_uid: str,
    archive: ArchiveSettings | None = None,
    dumps: bool = False,
) -> dict[str, Any]:
    """Return the content of ``store.json`` for a path of a store.

    ``StoreAccess.pod_document`` describes the arguments. ``archive`` defaults to the default settings.

    Raises:
        StoreProblem: the store cannot be used.
    """
    access = await load_access(secrets, store)
    return access.pod_document(
        engine=engine, path=path, cluster_uid=cluster_uid, archive=archive or ArchiveSettings(), dumps=dumps
    )


def resolve_access(store: BackupStore, secrets: Mapping[str, Secret]) -> StoreAccess:
    """Return the access that a store and its Secrets declare.

    Args:
        secrets: the existing Secrets by name.

    Raises:
        StoreProblem: as ``load_access``.
    """
    spec, entries = store.spec, _Entries(secrets)
    credentials = _credentials(store, entries)
    passphrase = _passphrase(store, entries)
    days = spec.immutability.days if spec.immutability is not None else 0
    if (s3 := spec.s3) is not None:
        return StoreAccess(
            bucket=s3.bucket,
            prefix=s3.prefix,
            endpoint=s3.endpoint or "",
            region=s3.region,
            addressing=s3.addressing,
            ca="" if s3.ca_secret_ref is None else entries.ca(s3.ca_secret_ref.name, s3.ca_secret_ref.key),
            **credentials,
            passphrase=passphrase,
            immutability_days=days,
        )
    if (gcs := spec.gcs) is not None:
        return StoreAccess(
            service="gcs",
            bucket=gcs.bucket,
            prefix=gcs.prefix,
            **credentials,
            passphrase=passphrase,
            immutability_days=days,
        )
    assert spec.azure is not None
    return StoreAccess(
        service="azure",
        bucket=spec.azure.container,
        account=spec.azure.account,
        prefix=spec.azure.prefix,
        **credentials,
        passphrase=passphrase,
        immutability_days=days,
    )


class _Credentials(TypedDict, total=False):
    """Fields of ``StoreAccess`` with credentials."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    annotations: Mapping[str, str]


def _credentials(store: BackupStore, entries: _Entries) -> _Credentials:
    reference, where = store.spec.credentials.secret_ref, "spec.credentials.secretRef"
    if reference is None:
        return {"annotations": identity_annotations(store)}
    key = entries.text(where, reference.name, reference.secret_access_key_key, lines=store.spec.gcs is not None)
    if store.spec.s3 is None:
        return {"secret_access_key": key}
    token_key = reference.session_token_key
    return {
        "access_key_id": entries.text(where, reference.name, reference.access_key_id_key),
        "secret_access_key": key,
        "session_token": "" if token_key is None else entries.text(where, reference.name, token_key),
    }


def _passphrase(store: BackupStore, entries: _Entries) -> str:
    if (key_secret := store.key_secret) is None:
        return ""
    if store.spec.encryption.secret_ref is None:
        entries.require_generated(key_secret.name, store.metadata.name)
    passphrase = entries.text("spec.encryption", key_secret.name, key_secret.key)
    known, present = store.status.key_fingerprint, key_fingerprint(passphrase)
    if known and known != present:
        raise StoreProblem(
            "WrongEncryptionKey",
            f"Secret {key_secret.name} has the encryption key {present}, and existing backups use {known}. Restore"
            " that key, or create a new BackupStore for the other one",
        )
    return passphrase


class _Entries:
    """Validated entries of Secrets. Messages never contain a value."""

    def __init__(self, secrets: Mapping[str, Secret]) -> None:
        self._secrets = secrets

    def require_generated(self, name: str, store: str) -> None:
        """Raise StoreProblem if a foreign Secret has this name."""
        secret = self._secrets.get(name)
        if secret is not None and secret.metadata.labels.get(STORE_LABEL) != store:
            raise StoreProblem(
                "SecretInvalid",
                f"Secret {name} exists and was not created for this BackupStore. Name it in"
                f" spec.encryption.secretRef, or give it the label {STORE_LABEL}={store}",
            )

    def text(self, field_name: str, name: str, key: str, *, lines: bool = False) -> str:
        """Return an entry without trailing line breaks.

        Editors and ``echo`` add them.
        """
        secret = self._secrets.get(name)
        if secret is None:
            raise StoreProblem("SecretNotFound", f"{field_name}: Secret {name} does not exist. Create it")
        content = secret.data.get(key, b"")
        if len(content) > MAX_STORE_ENTRY_BYTES:
            raise StoreProblem("SecretInvalid", f"{field_name}: {key} of Secret {name} has more than 64 KiB")
        try:
            text = content.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise StoreProblem("SecretInvalid", f"{field_name}: {key} of Secret {name} is not UTF-8") from None
        if not text:
            raise StoreProblem("SecretInvalid", f"{field_name}: Secret {name} has no {key}. Add it")
        if not lines and _CONTROL.search(text):
            raise StoreProblem("SecretInvalid", f"{field_name}: {key} of Secret {name} has control characters")
        return text

    def ca(self, name: str, key: str) -> str:
        text = self.text("spec.s3.caSecretRef", name, key, lines=True)
        if "-----BEGIN CERTIFICATE-----" not in text:
            raise StoreProblem("SecretInvalid", f"spec.s3.caSecretRef: {key} of Secret {name} is not PEM")
        return text
