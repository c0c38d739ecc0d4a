"""Access to an object store: location, credentials and encryption key.

The probe process imports this module. It must not import the framework, which would slow the process down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman_databases.api.backups.backup_common import ArchiveSettings
    from steersman_databases.api.backups.backup_store import Addressing, StoreProvider
    from steersman_databases.api.group import EngineName

POD_FORMAT = 1
_FINGERPRINT_CHARACTERS = 16


class StoreProblem(Exception):
    """The object store cannot be used.

    Attributes:
        reason: reason of the condition Ready, such as ``SecretNotFound``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """Everything that a program needs to use an object store. Secrets are left out of ``repr``.

    Attributes:
        bucket: bucket, or container of Azure.
        prefix: path in the bucket, without a slash at its ends; may be empty.
        endpoint: S3: URL; empty for AWS.
        account: Azure: storage account.
        ca: certificate authorities in PEM; empty for the public ones.
        access_key_id: S3 only.
        secret_access_key: S3: secret access key. GCS: service account key in JSON. Azure: access key of the account.
        annotations: annotations of the pods' ServiceAccount for workload identity. None with credentials of a Secret.
        passphrase: encryption key; empty without encryption.
        immutability_days: expected object lock; 0 for none.
    """

    service: StoreProvider = "s3"
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
    annotations: Mapping[str, str] | None = None
    passphrase: str = field(default="", repr=False)
    immutability_days: int = 0

    @property
    def key_fingerprint(self) -> str:
        """Fingerprint of the encryption key; empty without encryption."""
        return key_fingerprint(self.passphrase) if self.passphrase else ""

    @property
    def needs_identity(self) -> bool:
        """True if only pods with the identity of their ServiceAccount have access. The operator has none."""
        return self.annotations is not None

    def pod_document(
        self, *, engine: EngineName, path: str, cluster_uid: str, archive: ArchiveSettings, dumps: bool = False
    ) -> dict[str, Any]:
        """Return the content of ``store.json`` for the pods of a cluster.

        Args:
            path: path of the archive below the prefix, as ``archive_path`` returns it.
            cluster_uid: ``metadata.uid`` of the cluster; empty for the source of a recovery whose cluster is unknown.
            archive: settings of the archive.
            dumps: for dumps, which are restic's with each engine.

        Raises:
            StoreProblem: the pods of this engine cannot use this kind of object store.
        """
        self._require_support(pgbackrest=engine == "postgresql" and not dumps)
        return {
            "format": POD_FORMAT,
            "service": self.service,
            "engine": engine,
            "cluster_uid": cluster_uid,
            "path": path,
            "prefix": self.prefix,
            "bucket": self.bucket,
            "endpoint": self.endpoint,
            "region": self.region,
            "addressing": self.addressing,
            "account": self.account,
            "ca": self.ca,
            "accessKeyId": self.access_key_id,
            "secretAccessKey": self.secret_access_key,
            "sessionToken": self.session_token,
            "passphrase": self.passphrase,
            "immutabilityDays": self.immutability_days,
            "interval_seconds": archive.interval_seconds(engine),
            "on_volume_full": archive.on_volume_full,
            **({} if self.annotations is None else {"serviceAccountAnnotations": dict(self.annotations)}),
        }

    def _require_support(self, *, pgbackrest: bool) -> None:
        """Reject credentials that the program of the pods cannot use.

        Args:
            pgbackrest: the program is pgBackRest, otherwise restic.

        Raises:
            StoreProblem: the program cannot use these credentials.
        """
        if self.service != "azure":
            return
        if pgbackrest and self.needs_identity:
            # Its managed identities are those of the node, which belong to no tenant.
            raise StoreProblem(
                "UnsupportedStore",
                "spec.credentials.workloadIdentity: pgBackRest does not support the workload identity of Azure. Set"
                " spec.credentials.secretRef",
            )
        if not pgbackrest and not self.needs_identity:
            raise StoreProblem(
                "UnsupportedStore",
                "spec.credentials.secretRef: restic accepts the access key of Azure only in its environment, where it"
                " is not secret. Set spec.credentials.workloadIdentity",
            )


def key_fingerprint(passphrase: str) -> str:
    """Return the fingerprint of an encryption key.

    It is the first 16 hexadecimal digits of its SHA-256.
    """
    return hashlib.sha256(passphrase.encode()).hexdigest()[:_FINGERPRINT_CHARACTERS]
