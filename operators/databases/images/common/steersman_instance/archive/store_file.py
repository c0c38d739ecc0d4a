"""File by which the operator describes the object store to pods.

One format serves both engines: PostgreSQL's programs render pgBackRest's configuration from it, MySQL's the
environment of restic. A missing or empty file means that the cluster has no `spec.backup`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

FORMAT = 1
MAX_FILE_BYTES = 256 * 1024
_MAX_TEXT = 4096
_MAX_SECRET = 64 * 1024  # a session token of AWS has 2 KiB, a service account key of Google Cloud 2.4 KiB

Service = Literal["s3", "gcs", "azure"]
Engine = Literal["postgresql", "mysql"]
OnVolumeFull = Literal["StopWrites", "DropArchive"]
Addressing = Literal["Auto", "Path", "VirtualHost"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PATH_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class InvalidStoreFile(Exception):
    """The store file cannot be used. The message names the field and contains no value of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """An object store and the cluster's path in it. Secrets are left out of ``repr``.

    Args:
        cluster_uid: empty for the source of a recovery whose cluster is unknown.
        path: the cluster's own path below ``prefix``, without a slash at either end.
        prefix: of all clusters in this store; may be empty.
        bucket: bucket of S3 or Google Cloud Storage, container of Azure.
        endpoint: URL of an S3 service; empty for AWS itself.
        account: Azure's storage account.
        ca: PEM certificates that sign the endpoint's certificate; empty for the system's.
        access_key_id: empty with workload identity.
        gcp_account: Google Cloud's service account of the workload identity; may be empty.
        passphrase: of client-side encryption; empty where encryption is disabled.
        interval_seconds: the longest time that a change may be missing in the archive.
    """

    engine: Engine
    cluster_uid: str
    path: str
    service: Service = "s3"
    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = "us-east-1"
    addressing: Addressing = "Auto"
    account: str = ""
    ca: str = field(default="", repr=False)
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    gcp_account: str = ""
    passphrase: str = field(default="", repr=False)
    immutability_days: int = 0
    interval_seconds: float = 60.0
    on_volume_full: OnVolumeFull = "StopWrites"

    @property
    def root(self) -> str:
        """Path of the cluster in the bucket, without outer slashes."""
        return "/".join(part for part in (self.prefix, self.path) if part)

    @property
    def key_fingerprint(self) -> str:
        """Identifies the passphrase without revealing it. Empty where encryption is disabled."""
        return key_fingerprint(self.passphrase) if self.passphrase else ""

    @property
    def workload_identity(self) -> bool:
        """True if the pod's identity replaces an access key."""
        return not self.secret_access_key

    @property
    def identity(self) -> str:
        """Digest of everything but the credentials.

        It changes with the place or the key.
        """
        parts = (self.service, self.endpoint, self.bucket, self.account, self.root, self.cluster_uid)
        return hashlib.sha256("\0".join((*parts, self.key_fingerprint)).encode()).hexdigest()[:32]


def key_fingerprint(passphrase: str) -> str:
    """Return the fingerprint of a random passphrase.

    It is the first 16 hexadecimal digits of its SHA-256.
    """
    return hashlib.sha256(passphrase.encode()).hexdigest()[:16]


def load_store(path: Path) -> Store | None:
    """Read the store file.

    Returns:
        None where no store is declared: the file is missing or empty.

    Raises:
        InvalidStoreFile: the file is too large, not JSON, or a field is missing or malformed.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidStoreFile(f"{path.name} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise InvalidStoreFile(f"{path.name} has more than {MAX_FILE_BYTES} bytes")
    if not content.strip():
        return None
    try:
        fields: Any = json.loads(content)
    except (ValueError, RecursionError):
        # The parser's message quotes the content, which has secrets.
        raise InvalidStoreFile(f"{path.name} is not JSON") from None
    if not isinstance(fields, dict):
        raise InvalidStoreFile(f"{path.name} is not a JSON object")
    return parse_store(cast("dict[str, Any]", fields))


def parse_store(fields: Mapping[str, Any]) -> Store:
    """Validate the fields of a store file. Unknown fields are ignored.

    Raises:
        InvalidStoreFile: a field is missing or malformed.
    """
    if fields.get("format") != FORMAT:
        raise InvalidStoreFile(f"format of store.json must be {FORMAT}: use an image of this operator's release")
    reader = _Fields(fields)
    service = reader.choice("service", get_args(Service), "s3")
    store = Store(
        engine=cast(Engine, reader.choice("engine", get_args(Engine))),
        cluster_uid=reader.text("cluster_uid"),
        path=reader.object_path("path", required=True),
        service=cast(Service, service),
        bucket=reader.text("bucket", required=True),
        prefix=reader.object_path("prefix"),
        endpoint=reader.url("endpoint"),
        region=reader.text("region") or "us-east-1",
        addressing=cast(Addressing, reader.choice("addressing", get_args(Addressing), "Auto")),
        account=reader.text("account", required=service == "azure"),
        ca=reader.text("ca", limit=_MAX_SECRET, lines=True),
        access_key_id=reader.text("accessKeyId"),
        secret_access_key=reader.text("secretAccessKey", limit=_MAX_SECRET, lines=service == "gcs"),
        session_token=reader.text("sessionToken", limit=_MAX_SECRET),
        gcp_account=reader.annotation("iam.gke.io/gcp-service-account"),
        passphrase=reader.text("passphrase"),
        immutability_days=int(reader.number("immutabilityDays", 0, 36500, 0)),
        interval_seconds=reader.number("interval_seconds", 1, 86400, 60),
        on_volume_full=cast(OnVolumeFull, reader.choice("on_volume_full", get_args(OnVolumeFull), "StopWrites")),
    )
    if service == "s3" and bool(store.access_key_id) is not bool(store.secret_access_key):
        raise InvalidStoreFile("accessKeyId and secretAccessKey must be set together")
    return store


class _Fields:
    """Typed access to the fields of a JSON object. Messages never quote a value."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def text(self, name: str, *, required: bool = False, limit: int = _MAX_TEXT, lines: bool = False) -> str:
        value: Any = self._fields.get(name)
        if value is None or value == "":
            if required:
                raise InvalidStoreFile(f"{name} is missing in store.json")
            return ""
        if not isinstance(value, str) or len(value) > limit:
            raise InvalidStoreFile(f"{name} must be a string of at most {limit} characters")
        # A line break would add an option to the rendered configuration.
        if _CONTROL.search(value.replace("\n", "").replace("\r", "") if lines else value):
            raise InvalidStoreFile(f"{name} must not contain control characters")
        return value

    def annotation(self, name: str) -> str:
        found: Any = self._fields.get("serviceAccountAnnotations")
        return _Fields(cast("dict[str, Any]", found)).text(name) if isinstance(found, dict) else ""

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value: Any = self._fields.get(name)
        if value is None and default is not None:
            return default
        if value not in choices:
            raise InvalidStoreFile(f"{name} must be one of {', '.join(choices)}")
        return value

    def number(self, name: str, lowest: float, highest: float, default: float) -> float:
        value: Any = self._fields.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
            raise InvalidStoreFile(f"{name} must be a number from {lowest:g} to {highest:g}")
        return float(value)

    def object_path(self, name: str, *, required: bool = False) -> str:
        value = self.text(name, required=required).strip("/")
        if value and not all(_PATH_PART.fullmatch(part) for part in value.split("/")):
            raise InvalidStoreFile(f"{name} must consist of letters, digits, '.', '_', '-' and '/'")
        return value

    def url(self, name: str) -> str:
        value = self.text(name)
        if not value:
            return ""
        try:
            parts = urlsplit(value)
            valid = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            valid = False
        if not valid or urlsplit(value).path.strip("/"):
            raise InvalidStoreFile(f"{name} must have the form https://HOST[:PORT]")
        return value.rstrip("/")
