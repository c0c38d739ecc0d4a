"""Failures of an object store, as condition reasons with one sentence.

pgBackRest reports a store's refusal with the whole HTTP exchange, and a wrong passphrase with binary data. Neither
reaches logs or conditions. Source: pgBackRest's build/error.yaml for the exit codes.
"""

from __future__ import annotations

import re
from typing import Literal

from .store_file import Store

Reason = Literal[
    "StoreUnreachable",
    "StoreUnresponsive",
    "CredentialsRejected",
    "BucketNotFound",
    "CertificateNotTrusted",
    "StoreFull",
    "WrongEncryptionKey",
    "PathBelongsToAnotherCluster",
    "ArchiveDamaged",
    "InvalidStore",
    "ArchiveFailed",
]

EXIT_ARCHIVE_MISMATCH = 44
EXIT_ARCHIVE_DUPLICATE = 45
EXIT_LOCKED = 50
EXIT_FILE_MISSING = 55
EXIT_TERMINATED = 63

_MAX_OUTPUT = 64 * 1024
_MAX_DETAIL = 200
_ERROR_LINE = re.compile(r"(?:ERROR|ASSERT): \[(\d{3})\]: ?([^\n]*)")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")

# In this order: a text may fit several.
_PATTERNS: tuple[tuple[re.Pattern[str], Reason], ...] = (
    (
        re.compile(r"unable to verify certificate|certificate verify failed|self.signed cert|host name.*certificate"),
        "CertificateNotTrusted",
    ),
    (
        re.compile(
            r"XMinioStorageFull|QuotaExceeded|InsufficientStorage|StorageFull|\b507\b|[Nn]o space left|NoSpace"
        ),
        "StoreFull",
    ),
    (re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist"), "BucketNotFound"),
    (
        re.compile(
            r"InvalidAccessKeyId|SignatureDoesNotMatch|Access ?Denied|ExpiredToken|Invalid(Identity)?Token|AADSTS\d"
            r"|\b40[13] \("
        ),
        "CredentialsRejected",
    ),
    (
        # With a wrong passphrase a file decrypts to an error or to garbage.
        re.compile(
            r"cipher header|unable to (flush|process) (crypto|cipher)|bad decrypt|cipher-pass|is encrypted"
            r"|unable to load info file[^\n]*\W+(?:Crypto|Format)Error"
        ),
        "WrongEncryptionKey",
    ),
    (re.compile(r"timeout after|timed out|\b(408|429|5\d\d) \("), "StoreUnresponsive"),
    (
        re.compile(r"unable to connect|unable to get address|[Cc]onnection (refused|reset)|unexpected eof|TLS error"),
        "StoreUnreachable",
    ),
)
# Requests as pgBackRest and restic quote them.
_DELETION = re.compile(r"\bDELETE /|\bPOST /\S*\?delete=|\bRemoveObject\b")
_CODES: dict[int, Reason] = {
    26: "ArchiveDamaged",
    29: "ArchiveDamaged",
    EXIT_ARCHIVE_MISMATCH: "PathBelongsToAnotherCluster",
    49: "StoreUnreachable",
    51: "PathBelongsToAnotherCluster",
    95: "WrongEncryptionKey",
}


class ArchiveError(Exception):
    """An operation on the object store failed.

    Args:
        reason: of the condition.
        message: one sentence for users, without secrets.
        code: exit code of pgBackRest; 0 where no program has ended.
        detail: pgBackRest's own first line, printable and short. It may name hosts and files.
    """

    def __init__(self, reason: Reason, message: str, code: int = 0, detail: str = "") -> None:
        super().__init__(f"{reason}: {message}")
        self.reason: Reason = reason
        self.message = message
        self.code = code
        self.detail = detail


def classify(store: Store, code: int, output: str) -> ArchiveError:
    """Return the failure that pgBackRest or restic reported.

    Args:
        code: its exit code.
        output: its standard output and error; only the beginning is read.
    """
    output = output[:_MAX_OUTPUT]
    matching: list[Reason] = [reason for pattern, reason in _PATTERNS if pattern.search(output)]
    reason = matching[0] if matching else _CODES.get(code, "ArchiveFailed")
    detail = _detail(output, code)
    if reason == "CredentialsRejected" and _DELETION.search(output):
        return ArchiveError(reason, deletion_refused(store), code, detail)
    return ArchiveError(reason, describe(store, reason, detail), code, detail)


def describe(store: Store, reason: Reason, detail: str = "") -> str:
    """Return the sentence of a reason for this store."""
    place = store.endpoint or {"s3": "AWS S3", "gcs": "Google Cloud Storage", "azure": "Azure"}[store.service]
    match reason:
        case "StoreUnreachable":
            return f"{place} cannot be reached. Check endpoint, DNS and network policies."
        case "StoreUnresponsive":
            return f"{place} accepts connections but does not respond in time."
        case "CredentialsRejected" if store.workload_identity:
            return (
                f"{place} rejects the workload identity of this pod for bucket {store.bucket}. Check that its role"
                " trusts the ServiceAccount of the pod, and may use the bucket."
            )
        case "CredentialsRejected":
            return f"{place} rejects the credentials for bucket {store.bucket}. Check the BackupStore's credentials."
        case "BucketNotFound":
            return f"Bucket {store.bucket} does not exist at {place}. Create it or correct the BackupStore."
        case "CertificateNotTrusted":
            return f"The certificate of {place} is not trusted. Set caSecretRef of the BackupStore."
        case "StoreFull":
            return (
                f"{place} has no room left in bucket {store.bucket}. Add capacity or shorten spec.backup.retention."
            )
        case "WrongEncryptionKey":
            return (
                f"The archive at {store.root} is encrypted with another passphrase than the one with fingerprint "
                f"{store.key_fingerprint or 'none'}. Restore the passphrase of the BackupStore."
            )
        case "PathBelongsToAnotherCluster":
            return f"The archive at {store.root} belongs to another cluster. Nothing was written."
        case "ArchiveDamaged":
            return f"An object of the archive at {store.root} is damaged: {detail or 'checksum mismatch'}."
        case "InvalidStore":
            return detail
        case "ArchiveFailed":
            return f"pgBackRest failed: {detail or 'it gave no reason'}."


def deletion_refused(store: Store) -> str:
    """Return the sentence for credentials that may read and write only."""
    return (
        f"The credentials for bucket {store.bucket} may not delete objects."
        f" Permit their user to delete objects below {store.root}."
    )


def _detail(output: str, code: int) -> str:
    """Return the first line of the error, printable and short."""
    found = _ERROR_LINE.search(output)
    text = found[2] if found else f"exit code {code}"
    return _UNPRINTABLE.sub(" ", text).strip().rstrip(".")[:_MAX_DETAIL]
