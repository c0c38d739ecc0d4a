"""Default retention of a bucket in S3.

obstore has no requests for buckets. The signature is that of AWS, version 4, for one GET request without a body.
Source: Amazon S3 API reference, "GetObjectLockConfiguration" and "Authenticating Requests (AWS Signature Version 4)".
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus

from steersman_databases.features.backup_store.access import StoreAccess
from steersman_databases.features.backup_store.endpoint import (
    TIMEOUT_SECONDS,
    endpoint_of,
    tls_context,
    uses_virtual_host,
)

_ALGORITHM = "AWS4-HMAC-SHA256"
_QUERY = "object-lock="
_EMPTY_HASH = hashlib.sha256(b"").hexdigest()
_MAX_RESPONSE_BYTES = 64 * 1024
_DAYS_PER_UNIT = {"Days": 1, "Years": 365}
_RETENTION = re.compile(r"<DefaultRetention>.*?<(Days|Years)>([0-9]{1,6})</", re.DOTALL)


def default_lock_days(access: StoreAccess) -> int | None:
    """Return the days for which a bucket locks new objects.

    0 means none. None means that the store does not report it.
    """
    endpoint = endpoint_of(access)
    path = "/" if uses_virtual_host(access) else f"/{access.bucket}"
    connection = http.client.HTTPSConnection(
        endpoint.host, endpoint.port, timeout=TIMEOUT_SECONDS, context=tls_context(access)
    )
    try:
        host = endpoint.host if endpoint.port == http.client.HTTPS_PORT else f"{endpoint.host}:{endpoint.port}"
        headers = signed_headers(access, host, path, datetime.now(UTC))
        connection.request("GET", f"{path}?{_QUERY}", headers=headers)
        response = connection.getresponse()
        status, content = response.status, response.read(_MAX_RESPONSE_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if status == HTTPStatus.OK:
        return days_of(content)
    return 0 if "ObjectLockConfigurationNotFoundError" in content else None


def days_of(configuration: str) -> int:
    """Return the default retention of an ``ObjectLockConfiguration`` in days.

    0 without one.
    """
    found = _RETENTION.search(configuration)
    return int(found[2]) * _DAYS_PER_UNIT[found[1]] if found else 0


def signed_headers(access: StoreAccess, host: str, path: str, now: datetime) -> Mapping[str, str]:
    """Return headers of a signed GET request for an object lock.

    Args:
        host: value of the header Host.
        path: path of the bucket.
        now: time of the request, in UTC.
    """
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": host, "x-amz-content-sha256": _EMPTY_HASH, "x-amz-date": moment}
    if access.session_token:
        headers["x-amz-security-token"] = access.session_token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = "\n".join(("GET", path, _QUERY, lines, names, _EMPTY_HASH))
    scope = (moment[:8], access.region, "s3", "aws4_request")
    text = "\n".join((_ALGORITHM, moment, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{access.secret_access_key}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = "/".join((access.access_key_id, *scope))
    authorization = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": authorization}
