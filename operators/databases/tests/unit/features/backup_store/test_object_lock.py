"""Default retention of a bucket, and the signature of the request for it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from steersman_databases.features.backup_store.access import StoreAccess
from steersman_databases.features.backup_store.object_lock import days_of, signed_headers

ENABLED = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>{}</ObjectLockConfiguration>"
RULE = "<Rule><DefaultRetention><Mode>COMPLIANCE</Mode>{}</DefaultRetention></Rule>"


@pytest.mark.parametrize(
    ("retention", "days"), [("<Days>30</Days>", 30), ("\n  <Years>2</Years>\n", 730), ("<Days>x</Days>", 0)]
)
def test_default_retention_is_read_in_days(retention: str, days: int) -> None:
    assert days_of(ENABLED.format(RULE.format(retention))) == days


def test_bucket_without_rule_has_no_retention() -> None:
    assert days_of(ENABLED.format("")) == days_of("") == 0


def test_signature_covers_session_token_and_hides_secret() -> None:
    access = StoreAccess(bucket="backups", access_key_id="AKID", secret_access_key="hush", session_token="token")
    headers = signed_headers(access, "s3.example.com", "/backups", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert headers["x-amz-security-token"] == "token"
    authorization = headers["authorization"]
    assert "Credential=AKID/20260102/us-east-1/s3/aws4_request" in authorization
    assert "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token" in authorization
    assert "hush" not in str(headers)
