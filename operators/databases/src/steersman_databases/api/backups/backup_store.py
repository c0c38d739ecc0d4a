"""``BackupStore``: a place in an object store for archives and backups."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman.meta import (
    Field,
    FrozenDict,
    FrozenStruct,
    PrinterColumn,
    Resource,
    Rule,
    Spec,
    Status,
    exactly_one_of,
    resource,
    schema,
)
from steersman_databases.api.group import GROUP, NAME_PATTERN, VERSION
from steersman_databases.api.names import Key, Name, Namespaces

StoreProvider = Literal["s3", "gcs", "azure"]
Addressing = Literal["Auto", "Path", "VirtualHost"]
EncryptionMode = Literal["Enabled", "Disabled"]

KEY_EXPORTED_ANNOTATION = f"{GROUP}/key-exported"
"""Annotation of a ``BackupStore``: fingerprint of its exported encryption key."""
GENERATED_KEY_ENTRY = "passphrase"
"""Entry of the Secret ``<store>-key`` with the generated encryption key."""

_BUCKET = "^[a-z0-9]([-._a-z0-9]*[a-z0-9])?$"
_PREFIX = "^([A-Za-z0-9][-._A-Za-z0-9]*(/[A-Za-z0-9][-._A-Za-z0-9]*)*)?$"


def _immutable(field: str) -> Rule:
    return Rule(
        rule="self == oldSelf",
        message=f"{field} is immutable: existing backups and archives are not moved. Create a new BackupStore",
    )


_SAME_PREFIX = Rule(
    rule="(has(self.prefix) ? self.prefix : '') == (has(oldSelf.prefix) ? oldSelf.prefix : '')",
    message="prefix is immutable: existing backups and archives are not moved. Create a new BackupStore",
    field_path=".prefix",
)
_Prefix = Annotated[str, Field(max_length=256, pattern=_PREFIX)]


class StoreCaReference(FrozenStruct):
    """A certificate authority in a Secret of the namespace of the ``BackupStore``."""

    name: Name
    """Name of the Secret."""
    key: Key = "ca.crt"
    """Key of the certificates in PEM."""


@schema(rules=[_SAME_PREFIX])
class S3Location(FrozenStruct):
    """A bucket of Amazon S3 or of a compatible object store."""

    bucket: Annotated[str, Field(min_length=3, max_length=63, pattern=_BUCKET, rules=(_immutable("bucket"),))]
    """Name of the bucket. It must exist. Immutable."""
    prefix: _Prefix = ""
    """Path in the bucket, without a slash at its ends. Immutable."""
    endpoint: (
        Annotated[
            str,
            Field(
                max_length=512,
                rules=(
                    Rule(
                        rule="self.matches('^https://[^/?#@ ]+$')",
                        message="endpoint must be https://host or https://host:port: credentials and data need TLS",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """URL of a compatible object store, such as https://minio.storage.svc:9000.

    Defaults to that of AWS in ``region``.
    """
    region: Annotated[str, Field(min_length=1, max_length=63, pattern="^[-a-zA-Z0-9]+$")] = "us-east-1"
    """Region of the bucket. Compatible object stores often ignore it."""
    addressing: Addressing = "Auto"
    """Path (https://host/bucket) or VirtualHost (https://bucket.host). Auto is Path with ``endpoint``, otherwise
    VirtualHost."""
    ca_secret_ref: StoreCaReference | None = None
    """Certificate authority of the endpoint. Defaults to the public ones."""


@schema(rules=[_SAME_PREFIX])
class GcsLocation(FrozenStruct):
    """A bucket of Google Cloud Storage."""

    bucket: Annotated[str, Field(min_length=3, max_length=222, pattern=_BUCKET, rules=(_immutable("bucket"),))]
    """Name of the bucket. It must exist. Immutable."""
    prefix: _Prefix = ""
    """Path in the bucket, without a slash at its ends. Immutable."""


@schema(rules=[_SAME_PREFIX])
class AzureLocation(FrozenStruct):
    """A container of Azure Blob Storage."""

    container: Annotated[
        str,
        Field(min_length=3, max_length=63, pattern="^[a-z0-9]+(-[a-z0-9]+)*$", rules=(_immutable("container"),)),
    ]
    """Name of the container. It must exist. Immutable."""
    account: Annotated[str, Field(min_length=3, max_length=24, pattern="^[a-z0-9]+$", rules=(_immutable("account"),))]
    """Name of the storage account. Immutable."""
    prefix: _Prefix = ""
    """Path in the container, without a slash at its ends. Immutable."""


class StoreSecretReference(FrozenStruct):
    """A Secret with credentials in the namespace of the ``BackupStore``."""

    name: Name
    """Name of the Secret."""
    access_key_id_key: Key = "ACCESS_KEY_ID"
    """S3: key of the access key ID."""
    secret_access_key_key: Key = "SECRET_ACCESS_KEY"  # noqa: S105 - the name of a key
    """Key of the secret access key. On GCS it has the service account's key in JSON, on Azure the account's access
    key."""
    session_token_key: Key | None = None
    """S3: key of the session token of temporary credentials. Defaults to no token."""


class WorkloadIdentity(FrozenStruct):
    """Credentials of the pods' ServiceAccount from the cloud provider."""

    service_account_annotations: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=1024)]], Field(max_properties=16)
    ] = FrozenDict()
    """Annotations of the ServiceAccounts. S3 needs eks.amazonaws.com/role-arn. Azure needs
    azure.workload.identity/client-id and azure.workload.identity/tenant-id. Google Cloud may have
    iam.gke.io/gcp-service-account."""


@schema(rules=[exactly_one_of("secretRef", "workloadIdentity")])
class StoreCredentials(FrozenStruct):
    """Credentials for the object store."""

    secret_ref: StoreSecretReference | None = None
    """Secret with the credentials."""
    workload_identity: WorkloadIdentity | None = None
    """Identity of the pods at the cloud provider. The operator itself has no access to such a store. A change
    restarts the instances of clusters with this store."""


class EncryptionKeyReference(FrozenStruct):
    """An encryption key in a Secret of the namespace of the ``BackupStore``."""

    name: Name
    """Name of the Secret."""
    key: Key = "passphrase"
    """Key of the passphrase."""


@schema(
    rules=[
        Rule(
            rule="self == oldSelf",
            message="encryption is immutable: existing backups are not converted. Create a new BackupStore",
        ),
        Rule(
            rule="self.mode == 'Enabled' || !has(self.secretRef)",
            message="secretRef needs mode Enabled: remove it, or set mode to Enabled",
            field_path=".secretRef",
        ),
    ]
)
class StoreEncryption(FrozenStruct):
    """Encryption of backups and archives before they leave the pods."""

    mode: EncryptionMode = "Enabled"
    """Enabled or Disabled."""
    secret_ref: EncryptionKeyReference | None = None
    """Secret with the encryption key. Without it the operator creates the Secret <store>-key, which outlives this
    object. Export that key: without it no backup can be read."""


class StoreImmutability(FrozenStruct):
    """Object lock of the bucket."""

    days: Annotated[int, Field(ge=1, le=36500, format="int32")]
    """Days for which the bucket must lock new objects. The condition ObjectLock shows whether it does."""


@schema(
    rules=[
        exactly_one_of("s3", "gcs", "azure"),
        Rule(
            rule="has(self.s3) == has(oldSelf.s3) && has(self.gcs) == has(oldSelf.gcs)"
            " && has(self.azure) == has(oldSelf.azure)",
            message="the kind of object store is immutable: create a new BackupStore",
        ),
    ]
)
class BackupStoreSpec(Spec):
    """The declared object store."""

    s3: S3Location | None = None
    """Bucket of Amazon S3 or of a compatible object store."""
    gcs: GcsLocation | None = None
    """Bucket of Google Cloud Storage."""
    azure: AzureLocation | None = None
    """Container of Azure Blob Storage. PostgreSQL needs credentials.secretRef, MySQL and dumps need
    credentials.workloadIdentity."""
    credentials: StoreCredentials
    """Credentials for the object store."""
    encryption: StoreEncryption = StoreEncryption()
    """Encryption of backups and archives. Immutable."""
    immutability: StoreImmutability | None = None
    """Expected object lock of the bucket. Defaults to none."""
    allowed_namespaces: Annotated[tuple[Namespaces, ...], Field(max_items=256, list_type="set")] = ()
    """Other namespaces whose clusters may use this store; "*" is each one. Its own namespace always may."""


class BackupStoreStatus(Status):
    """The observed object store."""

    key_fingerprint: str | None = None
    """Fingerprint of the encryption key: start of its SHA-256 (16 hexadecimal digits)."""
    clock_skew_seconds: int | None = None
    """Clock difference between object store and operator, from 5 seconds on.

    It is positive if the object store is ahead.
    """


@resource(
    group=GROUP,
    version=VERSION,
    short_names=["bst"],
    categories=["all"],
    columns=[
        PrinterColumn("Bucket", ".spec.s3.bucket"),
        PrinterColumn("Endpoint", ".spec.s3.endpoint", priority=1),
        PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ],
    rules=[
        Rule(
            rule=f"self.metadata.name.matches('{NAME_PATTERN}')",
            message="metadata.name must be at most 45 lower-case letters, digits and '-', starting with a letter: "
            "the Secret of the encryption key is named after it",
        ),
    ],
)
class BackupStore(Resource[BackupStoreSpec, BackupStoreStatus]):
    """A place in an object store for archives and backups of clusters."""

    @property
    def provider(self) -> StoreProvider:
        """The kind of object store."""
        return "s3" if self.spec.s3 is not None else "gcs" if self.spec.gcs is not None else "azure"

    @property
    def key_secret(self) -> EncryptionKeyReference | None:
        """The Secret with the encryption key, generated ones included. None if encryption is disabled."""
        encryption = self.spec.encryption
        if encryption.mode == "Disabled":
            return None
        return encryption.secret_ref or EncryptionKeyReference(
            name=f"{self.metadata.name}-key", key=GENERATED_KEY_ENTRY
        )
