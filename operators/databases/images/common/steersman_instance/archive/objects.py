"""Objects of a cluster's path in its store, by obstore.

pgBackRest and restic have clients of their own; this one serves the archive of binary logs and the catalog.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from ..paths import PATHS, InstancePaths
from .errors import ArchiveError, Reason, deletion_refused, describe
from .pod_identity import require_pod_identity
from .store_ca import write_ca
from .store_file import Store

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, RetryConfig, S3Config  # exist for type checkers only

MAX_OBJECT_BYTES = 64 << 20
_PAGE = 1000
_CONNECT_TIMEOUT = timedelta(seconds=5)
_REQUEST_TIMEOUT = timedelta(seconds=60)
_RETRY_TIMEOUT = timedelta(seconds=15)
_MAX_RETRIES = 2

_PATTERNS: tuple[tuple[re.Pattern[str], Reason], ...] = (
    (re.compile(r"UnknownIssuer|invalid peer certificate|certificate", re.IGNORECASE), "CertificateNotTrusted"),
    (re.compile(r"StorageFull|QuotaExceeded|InsufficientStorage|\b507\b|No space left|NoSpace"), "StoreFull"),
    (
        re.compile(
            r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ExpiredToken|Invalid(Identity)?Token|AADSTS\d"
            r"|\b40[13]\b"
        ),
        "CredentialsRejected",
    ),
    (re.compile(r"NoSuchBucket"), "BucketNotFound"),
    (re.compile(r"timed out|timeout|\b(408|429|50[0234])\b", re.IGNORECASE), "StoreUnresponsive"),
)


_Client = S3Store | GCSStore | AzureStore | MemoryStore


class ObjectNotFound(Exception):
    """There is no object of this name."""


class ObjectExists(Exception):
    """An object of this name exists and is never overwritten."""


class Objects:
    """Objects below a path. Names are relative to it.

    Args:
        store: describes the place in messages.
        root: path in the bucket, without a slash at either end.
        client: obstore's store; made from `store` where it is None.
    """

    def __init__(self, store: Store, root: str, client: _Client) -> None:
        self._store, self._root, self._client = store, root, client

    def create(self, name: str, content: bytes) -> None:
        """Write an object that does not exist yet. Raises ObjectExists, ArchiveError."""
        with self._errors():
            try:
                obstore.put(self._client, self._path(name), content, mode="create")
            except exceptions.AlreadyExistsError:
                raise ObjectExists(name) from None

    def read(self, name: str) -> bytes:
        """Return the content of an object. Raises ObjectNotFound, ArchiveError."""
        with self._errors(name):
            found = obstore.get(self._client, self._path(name))
            if found.meta["size"] > MAX_OBJECT_BYTES:
                raise ArchiveError("ArchiveDamaged", f"Object {name} is larger than any object of an archive.")
            return bytes(found.bytes())

    def read_start(self, name: str, length: int) -> bytes:
        """Return at most `length` bytes of an object's start. Raises ObjectNotFound, ArchiveError."""
        with self._errors(name):
            return bytes(obstore.get_range(self._client, self._path(name), start=0, length=length))

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names below a prefix, sorted as the store sorts them. Raises ArchiveError."""
        with self._errors():
            pages = obstore.list(self._client, prefix=self._path(prefix), chunk_size=_PAGE)  # pyright: ignore[reportUnknownMemberType]
            for page in pages:
                for found in page:
                    yield found["path"].removeprefix(f"{self._root}/")

    def directories(self, prefix: str) -> list[str]:
        """Return the sorted names below a prefix that contain objects.

        Raises ArchiveError.
        """
        with self._errors():
            found = obstore.list_with_delimiter(self._client, prefix=self._path(prefix))  # pyright: ignore[reportUnknownMemberType]
            return sorted(path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"])

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects. One that does not exist is not an error. Raises ArchiveError."""
        if not names:
            return
        try:
            with self._errors():
                try:
                    obstore.delete(self._client, [self._path(name) for name in names])
                except FileNotFoundError:
                    return
        except ArchiveError as error:
            if error.reason == "CredentialsRejected":
                raise ArchiveError(error.reason, deletion_refused(self._store)) from None
            raise

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _errors(self, name: str = "") -> Generator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if name and "NoSuchBucket" not in str(error):
                raise ObjectNotFound(name) from None
            raise ArchiveError("BucketNotFound", describe(self._store, "BucketNotFound")) from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
            raise ArchiveError("CredentialsRejected", describe(self._store, "CredentialsRejected")) from None
        except (exceptions.BaseError, OSError) as error:
            # The text has the request with its headers: it decides the reason and goes nowhere.
            text = str(error)
            matching: list[Reason] = [reason for pattern, reason in _PATTERNS if pattern.search(text)]
            reason: Reason = matching[0] if matching else "StoreUnreachable"
            raise ArchiveError(reason, describe(self._store, reason)) from None


def open_objects(store: Store, directory: str, paths: InstancePaths = PATHS) -> Objects:
    """Connect to the objects of the cluster's path.

    They are below `directory`, unless it is empty.

    The authority of a store is trusted by this whole process, which must use no other store.

    Raises:
        ArchiveError: the pod lacks the workload identity that the store needs.
    """
    require_pod_identity(store)
    if store.ca:
        # The library has no option for it, and reads the variable when a client is made.
        os.environ["SSL_CERT_FILE"] = str(write_ca(store, paths))
    client = _open(store)
    return Objects(store, f"{store.root}/{directory}".rstrip("/"), client)


def _open(store: Store) -> _Client:
    options: ClientConfig = {
        "connect_timeout": _CONNECT_TIMEOUT,
        "timeout": _REQUEST_TIMEOUT,
        "allow_http": store.endpoint.startswith("http://"),
    }
    retry: RetryConfig = {"max_retries": _MAX_RETRIES, "retry_timeout": _RETRY_TIMEOUT}
    # Without credentials of the store the clients use the variables of the workload identity.
    match store.service:
        case "s3":
            return S3Store(
                store.bucket,
                virtual_hosted_style_request=store.addressing == "VirtualHost",
                client_options=options,
                retry_config=retry,
                config=_config(store),
            )
        case "gcs":
            key = store.secret_access_key
            return GCSStore(
                store.bucket,
                config={"service_account_key": key} if key else None,
                client_options=options,
                retry_config=retry,
            )
        case "azure":
            account: AzureConfig = {"account_name": store.account}
            if store.secret_access_key:
                account["account_key"] = store.secret_access_key
            return AzureStore(
                store.bucket,
                config=account,
                client_options=options,
                retry_config=retry,
            )


def _config(store: Store) -> S3Config:
    config: S3Config = {"region": store.region}
    if store.endpoint:
        config["endpoint"] = store.endpoint
    if store.access_key_id:
        config["access_key_id"] = store.access_key_id
        config["secret_access_key"] = store.secret_access_key
    if store.session_token:
        config["session_token"] = store.session_token
    return config
