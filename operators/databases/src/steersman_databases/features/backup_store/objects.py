"""Objects in an object store, for the probe process. Only that process imports this module, and with it obstore."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem
from steersman_databases.features.backup_store.endpoint import (
    endpoint_of,
    uses_virtual_host,
)
from steersman_databases.features.backup_store.layout import (
    IDENTITY_OBJECT,
    MAX_IDENTITY_BYTES,
    PROBE_OBJECT,
    InvalidIdentity,
    object_path,
    parse_identity,
)
from steersman_databases.features.backup_store.listing import (
    MYSQL_CATALOG,
    POSTGRESQL_BACKUPS,
    StoredArchive,
    StoredBackup,
    StoredObject,
    mysql_backup,
    postgresql_backups,
)
from steersman_databases.features.backup_store.store_errors import problem_of

_PATH_PARTS = 3
_MAX_DESCRIPTION_BYTES = 1024 * 1024
_PROBE_CONTENT = b"steersman\n"
_RETRY: obstore.store.RetryConfig = {"max_retries": 1, "retry_timeout": timedelta(seconds=6)}
_CLIENT: obstore.store.ClientConfig = {"timeout": "6s", "connect_timeout": "5s", "user_agent": "steersman"}


class StoreObjects:
    """Objects below the prefix of one store.

    Args:
        access: location and credentials.
    """

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        with self._problems("use"):
            self._store = _open(access)

    def check_access(self) -> None:
        """List the prefix and create the probe object.

        Raises:
            StoreProblem: the store rejects a request, or does not support conditional writes.
        """
        with self._problems("list"):
            # The stub refers to a library of Arrow that is not installed.
            pages = self._store.list(self._access.prefix or None, chunk_size=1)  # pyright: ignore[reportUnknownMemberType]
            next(iter(pages), None)
        if self._create(self._probe_path, _PROBE_CONTENT) and self._create(self._probe_path, _PROBE_CONTENT):
            raise StoreProblem(
                "UnsupportedStore",
                "the object store ignores If-None-Match, so that two clusters could write one path. Use a version"
                " that supports conditional writes",
            )

    def claim(self, path: str, identity: bytes) -> None:
        """Create or verify ``steersman.json`` in the path of a cluster.

        Raises:
            StoreProblem: the path belongs to another cluster (``PathBelongsToAnotherCluster``), or has another
            encryption key (``WrongEncryptionKey``).
        """
        name = object_path(self._access.prefix, path, IDENTITY_OBJECT)
        if self._create(name, identity):
            return
        with self._problems("read"):
            content = bytes(self._store.get_range(name, start=0, length=MAX_IDENTITY_BYTES + 1))
        try:
            present, own = parse_identity(content), parse_identity(identity)
        except InvalidIdentity as error:
            raise StoreProblem("PathBelongsToAnotherCluster", f"{name}: {error}. Restore that object") from None
        if (present.engine, present.cluster_uid) != (own.engine, own.cluster_uid):
            raise StoreProblem(
                "PathBelongsToAnotherCluster",
                f"the path {path} belongs to the {present.engine} cluster with UID {present.cluster_uid}",
            )
        if present.key_fingerprint != own.key_fingerprint:
            raise StoreProblem(
                "WrongEncryptionKey",
                f"the path {path} uses the encryption key {present.key_fingerprint or 'none'}, and the BackupStore"
                f" has {own.key_fingerprint or 'none'}. Restore that key",
            )

    def archives(self) -> tuple[StoredArchive, ...]:
        """Return the paths of clusters that have a ``steersman.json``. Raises StoreProblem."""
        # <namespace>/<kind>.<name>/<UID>
        paths = [""]
        for _ in range(_PATH_PARTS):
            paths = [each for path in paths for each in self._directories(path)]
        found: list[StoredArchive] = []
        for path in paths:
            name = object_path(self._access.prefix, path, IDENTITY_OBJECT)
            try:
                identity = parse_identity(self._read(name, MAX_IDENTITY_BYTES + 1))
            except (FileNotFoundError, InvalidIdentity):
                continue
            found.append(
                StoredArchive(
                    path=path,
                    engine=identity.engine,
                    cluster_uid=identity.cluster_uid,
                    key_fingerprint=identity.key_fingerprint,
                )
            )
        return tuple(found)

    def backups(self, path: str) -> tuple[StoredBackup, ...]:
        """Return the backups of a cluster's path, oldest first. Raises StoreProblem."""
        catalog = [each.name for each in self._objects(path, MYSQL_CATALOG) if each.size <= _MAX_DESCRIPTION_BYTES]
        described: list[StoredBackup] = []
        for each in catalog:
            try:
                content = self._read(
                    object_path(self._access.prefix, path, MYSQL_CATALOG, each), _MAX_DESCRIPTION_BYTES
                )
            except FileNotFoundError:  # expired since it was listed
                continue
            if (backup := mysql_backup(content)) is not None:
                described.append(backup)
        described.sort(key=lambda backup: backup.stop)
        return (*postgresql_backups(self._objects(path, POSTGRESQL_BACKUPS)), *described)

    def _objects(self, *parts: str) -> Iterator[StoredObject]:
        directory = object_path(self._access.prefix, *parts)
        with self._problems("list"):
            for page in self._store.list(f"{directory}/"):  # pyright: ignore[reportUnknownMemberType]
                for each in page:
                    name = each["path"].removeprefix(f"{directory}/")
                    yield StoredObject(name=name, size=each["size"], modified=each["last_modified"])

    def _directories(self, path: str) -> list[str]:
        """Return the paths directly below a path relative to the prefix."""
        directory = "/".join(part for part in (self._access.prefix, path) if part)
        with self._problems("list"):
            found = self._store.list_with_delimiter(f"{directory}/" if directory else None)  # pyright: ignore[reportUnknownMemberType]
        below = f"{self._access.prefix}/" if self._access.prefix else ""
        return sorted(each.rstrip("/").removeprefix(below) for each in found["common_prefixes"])

    def _read(self, name: str, length: int) -> bytes:
        """Return the start of an object. Raises FileNotFoundError, StoreProblem."""
        try:
            return bytes(self._store.get_range(name, start=0, length=length))
        except FileNotFoundError:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise problem_of(self._access, "read", str(error)) from None

    @property
    def _probe_path(self) -> str:
        return object_path(self._access.prefix, PROBE_OBJECT)

    def _create(self, name: str, content: bytes) -> bool:
        """Return True if the object was created, False if it exists."""
        with self._problems("write"):
            try:
                self._store.put(name, content, mode="create")
            except AlreadyExistsError:
                return False
        return True

    @contextmanager
    def _problems(self, verb: str) -> Generator[None]:
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise problem_of(self._access, verb, str(error)) from None


def _open(access: StoreAccess) -> ObjectStore:
    if access.service == "gcs":
        return GCSStore(
            access.bucket,
            service_account_key=access.secret_access_key,
            client_options=_CLIENT,
            retry_config=_RETRY,
        )
    if access.service == "azure":
        return AzureStore(
            access.bucket,
            account_name=access.account,
            account_key=access.secret_access_key,
            client_options=_CLIENT,
            retry_config=_RETRY,
        )
    return S3Store(
        access.bucket,
        endpoint=endpoint_of(access).url,
        region=access.region,
        access_key_id=access.access_key_id,
        secret_access_key=access.secret_access_key,
        config={"session_token": access.session_token} if access.session_token else None,
        virtual_hosted_style_request=uses_virtual_host(access),
        client_options=_CLIENT,
        retry_config=_RETRY,
    )
