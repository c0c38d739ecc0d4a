"""Sentences for the errors of object stores."""

from __future__ import annotations

import pytest

from steersman_databases.features.backup_store.access import StoreAccess
from steersman_databases.features.backup_store.store_errors import problem_of

S3 = StoreAccess(bucket="backups", secret_access_key="hush")
SECRET_TEXT = "<StringToSign>hush</StringToSign>"


def _error(status: str, code: str = "", more: str = "") -> str:
    return f"Server returned non-2xx status code: {status}: <Error><Code>{code}</Code>{more}</Error> {SECRET_TEXT}"


@pytest.mark.parametrize(
    ("text", "reason", "words"),
    [
        (_error("403 Forbidden", "InvalidAccessKeyId"), "CredentialsRejected", "access key ID"),
        (_error("403 Forbidden", "SignatureDoesNotMatch"), "CredentialsRejected", "secret access key"),
        (_error("400 Bad Request", "ExpiredToken"), "CredentialsRejected", "session token"),
        (_error("403 Forbidden", "AccessDenied"), "CredentialsRejected", "does not permit to write"),
        (_error("404 Not Found", "NoSuchBucket"), "BucketNotFound", "spec.s3.bucket"),
        (_error("301 Moved Permanently", "PermanentRedirect"), "WrongRegion", "spec.s3.region"),
        (
            _error("400 Bad Request", "AuthorizationHeaderMalformed", "region <Region>eu-west-1</Region>"),
            "WrongRegion",
            "Set it to eu-west-1",
        ),
        (_error("507 Insufficient Storage"), "StoreFull", "full"),
        (_error("403 Forbidden", "QuotaExceeded"), "StoreFull", "quota"),
        (_error("503 Service Unavailable", "SlowDown"), "StoreUnresponsive", "at the moment"),
        (_error("501 Not Implemented", "NotImplemented"), "UnsupportedStore", "conditional writes"),
        (_error("403 Forbidden", "RequestTimeTooSkewed"), "ClockSkewed", "clocks"),
        (_error("418 I'm a teapot", "Odd"), "StoreUnreachable", "HTTP 418 (Odd)"),
        ("operation timed out", "StoreUnresponsive", "in time"),
        ("connection closed before message completed", "StoreUnreachable", "broke"),
    ],
)
def test_error_becomes_one_sentence(text: str, reason: str, words: str) -> None:
    problem = problem_of(S3, "write", text)
    assert problem.reason == reason and words in str(problem)
    assert "hush" not in str(problem)


def test_bucket_is_named_by_its_field() -> None:
    azure = StoreAccess(service="azure", bucket="backups", account="acc")
    assert "spec.azure.container" in str(problem_of(azure, "list", _error("404 Not Found", "ContainerNotFound")))
