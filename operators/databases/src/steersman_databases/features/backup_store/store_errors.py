"""Errors of object stores as one sentence that names the field."""

from __future__ import annotations

import re

from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem

_CODE = re.compile(r"<Code>([A-Za-z0-9_]{1,64})</Code>")
_STATUS = re.compile(r"status code: ([0-9]{3})")
_REGION = re.compile(r"<Region>([-a-z0-9]{1,63})</Region>")
_CREDENTIALS = "spec.credentials.secretRef"

# Source: Amazon S3 API reference, "Error responses"; MinIO and versitygw use the same codes.
_SENTENCES: dict[str, tuple[str, str]] = {
    "InvalidAccessKeyId": (
        "CredentialsRejected",
        f"{_CREDENTIALS}: the object store does not know the access key ID. Correct it in the Secret",
    ),
    "SignatureDoesNotMatch": (
        "CredentialsRejected",
        f"{_CREDENTIALS}: the secret access key does not belong to the access key ID. Correct it in the Secret",
    ),
    **dict.fromkeys(
        ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"),
        ("CredentialsRejected", f"{_CREDENTIALS}: the session token is invalid or expired. Renew it in the Secret"),
    ),
    "AuthenticationFailed": (
        "CredentialsRejected",
        f"{_CREDENTIALS}: the object store rejects the access key. Correct it in the Secret",
    ),
    **dict.fromkeys(
        ("InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity"),
        ("StoreFull", "the object store is full. Add capacity or raise its quota"),
    ),
    "InvalidBucketName": (
        "WrongAddressing",
        "the object store takes another part of the URL for the bucket. Set spec.s3.addressing to Path",
    ),
    "NotImplemented": (
        "UnsupportedStore",
        "the object store does not support conditional writes. Use a version that does",
    ),
    "RequestTimeTooSkewed": (
        "ClockSkewed",
        "the clocks of the object store and of the operator differ too much. Synchronise both",
    ),
    **dict.fromkeys(
        ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout"),
        ("StoreUnresponsive", "the object store cannot serve requests at the moment. Check it"),
    ),
}
_STATUS_CODES = {
    "507": "InsufficientStorage",
    "503": "ServiceUnavailable",
    "500": "InternalError",
    "501": "NotImplemented",
}
_TIMEOUTS = ("timed out", "timeout")


def problem_of(access: StoreAccess, verb: str, text: str) -> StoreProblem:
    """Return the problem that an error of obstore means.

    Args:
        verb: the operation that failed, such as ``list``.
        text: text of the error. It never becomes part of the message, since it quotes the request.
    """
    status = found[1] if (found := _STATUS.search(text)) else ""
    code = found[1] if (found := _CODE.search(text)) else _STATUS_CODES.get(status, "")
    if code in ("NoSuchBucket", "ContainerNotFound") or (status == "404" and verb in ("list", "write")):
        field = {"s3": "spec.s3.bucket", "gcs": "spec.gcs.bucket", "azure": "spec.azure.container"}[access.service]
        return StoreProblem(
            "BucketNotFound", f"{field}: the bucket {access.bucket} does not exist. Create it, or correct the name"
        )
    if (
        (code == "AuthorizationHeaderMalformed" and "region" in text)
        or code
        in (
            "PermanentRedirect",
            "IllegalLocationConstraintException",
        )
        or status == "301"
    ):
        return _wrong_region(text)
    if code in _SENTENCES:
        return StoreProblem(*_SENTENCES[code])
    if status in ("401", "403"):
        return StoreProblem(
            "CredentialsRejected",
            f"{_CREDENTIALS}: their policy does not permit to {verb} objects in {access.bucket}. Extend it",
        )
    if status:
        return StoreProblem(
            "StoreUnreachable",
            f"the object store responded with HTTP {status}{f' ({code})' if code else ''}. Check it",
        )
    if any(words in text.lower() for words in _TIMEOUTS):
        return StoreProblem("StoreUnresponsive", "the object store does not respond in time. Check it")
    if access.service == "gcs" and "key" in text.lower():
        return StoreProblem("SecretInvalid", f"{_CREDENTIALS}: the service account key is not valid JSON of a key")
    return StoreProblem(
        "StoreUnreachable", f"the connection broke during the request to {verb} objects. Check the store"
    )


def _wrong_region(text: str) -> StoreProblem:
    found = _REGION.search(text)
    advice = f"Set it to {found[1]}" if found else "Set it to the region of the bucket"
    return StoreProblem("WrongRegion", f"spec.s3.region is not that of the bucket. {advice}")
