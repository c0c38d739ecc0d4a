"""Restrictions of an object store: credentials that may not delete, and a bucket that locks new objects.

The requests are signed as AWS does, version 4. Source: Amazon S3 API reference, "PutBucketPolicy",
"PutObjectLockConfiguration" and "Authenticating Requests (AWS Signature Version 4)".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import urllib.request
from datetime import UTC, datetime

from devcluster.store import Credentials, ObjectStore

_ALGORITHM = "AWS4-HMAC-SHA256"


def add_user_without_deletion(store: ObjectStore, *deletable: str) -> Credentials:
    """Return credentials that may list, read and write objects, and delete those of the given names only."""
    user = Credentials.generate()
    file = store.directory.accounts / "users.json"
    accounts = json.loads(file.read_text())
    template = next(iter(accounts["accessAccounts"].values()))
    changed = {"access": user.access_key_id, "secret": user.secret_access_key, "role": "user"}
    accounts["accessAccounts"][user.access_key_id] = {**template, **changed}
    file.write_text(json.dumps(accounts))
    bucket = f"arn:aws:s3:::{store.bucket}"
    permitted = [(["s3:ListBucket"], [bucket]), (["s3:GetObject", "s3:PutObject"], [f"{bucket}/*"])]
    if deletable:
        permitted.append((["s3:DeleteObject"], [f"{bucket}/{name}" for name in deletable]))
    statements = [
        {"Effect": "Allow", "Principal": {"AWS": [user.access_key_id]}, "Action": actions, "Resource": resources}
        for actions, resources in permitted
    ]
    _put(store, "policy", json.dumps({"Version": "2012-10-17", "Statement": statements}))
    return user


def lock_new_objects(store: ObjectStore, days: int) -> None:
    """Set the default retention of a bucket that was created with object lock."""
    retention = f"<DefaultRetention><Mode>COMPLIANCE</Mode><Days>{days}</Days></DefaultRetention>"
    _put(
        store,
        "object-lock",
        "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>"
        f"<Rule>{retention}</Rule></ObjectLockConfiguration>",
    )


def _put(store: ObjectStore, setting: str, text: str) -> None:
    """Put a setting of the bucket as its owner."""
    owner, body = store.directory.root_credentials(), text.encode()
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {
        "content-md5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode(),
        "host": store.host_endpoint.removeprefix("https://"),
        "x-amz-content-sha256": digest,
        "x-amz-date": moment,
    }
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = "\n".join(("PUT", f"/{store.bucket}", f"{setting}=", lines, names, digest))
    scope = (moment[:8], store.region, "s3", "aws4_request")
    signed = "\n".join((_ALGORITHM, moment, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{owner.secret_access_key}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, signed.encode(), "sha256").hex()
    credential = "/".join((owner.access_key_id, *scope))
    headers["authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    url = f"{store.host_endpoint}/{store.bucket}?{setting}="
    request = urllib.request.Request(url, data=body, method="PUT", headers=headers)
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=str(store.ca_file))):
        pass
