"""The worst input at each limit, and one beyond it, for the gate and `make bench-limits`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from framework_support.certificates import CertificateAuthority
from steersman.api.core_v1 import ConfigMap
from steersman.client.decode import ObjectDecoder
from steersman.meta import FrozenDict, Object, ObjectMeta, Quantity, metadata_only, unstructured
from steersman.meta.go_json import MAX_JSON_DEPTH
from steersman_databases.core.cached_reads import without_unowned_data
from steersman_databases.engines.connection.input_limits import INPUT_LIMITS, MAX_UNOWNED_BYTES
from steersman_databases.engines.errors import InvalidName
from steersman_databases.engines.mysql.sql import verifiers as mysql_verifiers
from steersman_databases.engines.postgresql.sql.accounts import verifiers as postgresql_verifiers
from steersman_databases.engines.sql.identifiers import check_password
from steersman_databases.features.certificates import x509
from steersman_databases.features.monitoring.queries import parse_queries

EXPONENT = 65537
QUERY = "q{number}: {{query: SELECT 1, metrics: [{{a: {{usage: GAUGE}}}}]}}\n"


class InputCase(NamedTuple):
    """One input.

    Attributes:
        size: bytes of the worst accepted input.
        accept: processes the worst accepted input.
        refuse: processes a larger one. It returns True if that was refused.
    """

    size: int
    accept: Callable[[], object]
    refuse: Callable[[], bool]


@lru_cache
def certificate() -> str:
    return CertificateAuthority().issue("shop", names=["shop"])[0].decode()


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    encoded = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag]) + (encoded if size < 128 else bytes([0x80 | len(encoded)]) + encoded) + content


def rsa_key(p: int, q: int, **changed: int) -> str:
    """A key in PEM (RFC 8017, A.1.2). OpenSSL tests for minutes whether large Mersenne primes are prime."""
    private = pow(EXPONENT, -1, (p - 1) * (q - 1))
    parts = {"version": 0, "n": p * q, "e": EXPONENT, "d": private, "p": p, "q": q}
    parts |= {"dmp1": private % (p - 1), "dmq1": private % (q - 1), "iqmp": pow(q, -1, p), **changed}
    integers = (_der(2, part.to_bytes(part.bit_length() // 8 + 1, "big")) for part in parts.values())
    text = base64.encodebytes(_der(0x30, b"".join(integers))).decode()
    return f"-----BEGIN RSA PRIVATE KEY-----\n{text}-----END RSA PRIVATE KEY-----\n"


def _raises(run: Callable[[], object]) -> Callable[[], bool]:
    def refused() -> bool:
        try:
            run()
        except (ValueError, InvalidName):
            return True
        return False

    return refused


def _matches_key(key: str) -> Callable[[], object]:
    # Without the cache: it would hide the cost.
    return lambda: x509.key_matches.__wrapped__(certificate(), key)  # type: ignore[attr-defined]


def _fingerprint(text: str) -> Callable[[], object]:
    return lambda: x509._load.__wrapped__(text)  # type: ignore[attr-defined]


def _split(text: str) -> Callable[[], object]:
    return lambda: x509.split.__wrapped__(text)  # type: ignore[attr-defined]


def _scram(iterations: int) -> Callable[[], bool]:
    verifier = f"SCRAM-SHA-256${iterations}:{base64.b64encode(b'salt').decode()}$YQ==:YQ=="
    return lambda: not postgresql_verifiers.matches("password", verifier)


def _sha2(rounds: int) -> Callable[[], bool]:
    verifier = f"{mysql_verifiers.SHA2}:$A${rounds // 1000:03X}${'s' * 20}{'h' * 43}"
    return lambda: not mysql_verifiers.matches("p" * 256, verifier)


def _decode(document: bytes, kind: type[Object] | None = None) -> Callable[[], bool]:
    """Return a function that decodes an object. Its result is True if the object was skipped."""
    skipped: list[Any] = []
    decoded = kind or unstructured(ConfigMap.api_resource)
    decoder = ObjectDecoder(decoded, frozenset(), lambda key, error: skipped.append(key))

    def run() -> bool:
        skipped.clear()
        decoder.decode(document)
        return bool(skipped)

    return run


def _nested(levels: int) -> bytes:
    return b'{"metadata":{"name":"a"},"data":' + b'{"x":' * levels + b"1" + b"}" * levels + b"}"


def _decode_page(*items: bytes) -> Callable[[], bool]:
    """Return a function that decodes a page of a list. Its result is True if an object was skipped."""
    skipped: list[Any] = []
    decoder = ObjectDecoder(metadata_only(ConfigMap), frozenset(), lambda key, error: skipped.append(key))
    body = b'{"metadata":{"resourceVersion":"5"},"items":[' + b",".join(items) + b"]}"

    def run() -> bool:
        skipped.clear()
        decoder.decode_page(body)
        return bool(skipped)

    return run


def _limit(name: str) -> int:
    return INPUT_LIMITS[name].limit


def input_cases() -> dict[str, InputCase]:
    """Return the cases by the names of the table, and the limits of the framework."""
    pem, key_limit = certificate(), _limit("private key")
    certificate_limit, bundle_limit = _limit("certificate"), _limit("CA bundle")
    postgresql_password, mysql_password = _limit("password on PostgreSQL"), _limit("password on MySQL")
    iterations = _limit("iterations of a SCRAM verifier")
    rounds = _limit("rounds of a caching_sha2_password verifier")
    queries_limit = _limit("queries of one ConfigMap key")
    queries = "".join(QUERY.format(number=number) for number in range(queries_limit // 62))[:queries_limit]
    small_key, large_key = rsa_key(2**2203 - 1, 2**1279 - 1), rsa_key(2**4423 - 1, 2**4253 - 1)
    bundle = pem * (bundle_limit // len(pem))
    unowned = ConfigMap(metadata=ObjectMeta(name="a"), data=FrozenDict({"a": "x" * (MAX_UNOWNED_BYTES + 1)}))
    owned = ConfigMap(metadata=ObjectMeta(name="a"), data=FrozenDict({"a": "x" * MAX_UNOWNED_BYTES}))
    worst_password = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}"
    longest = worst_password * (postgresql_password // len(worst_password.encode()))
    return {
        "RSA key": InputCase(len(small_key), _matches_key(small_key), _raises(_matches_key(large_key))),
        "private key": InputCase(
            key_limit, _raises(_matches_key("#" * key_limit)), _raises(_matches_key("#" * (key_limit + 1)))
        ),
        "certificate": InputCase(
            certificate_limit,
            _fingerprint(pem.rjust(certificate_limit, "\n")),
            _raises(_fingerprint(pem.rjust(certificate_limit + 1, "\n"))),
        ),
        "CA bundle": InputCase(len(bundle), _split(bundle), _raises(_split(bundle.rjust(bundle_limit + 1, "\n")))),
        "password on PostgreSQL": InputCase(
            postgresql_password,
            lambda: postgresql_verifiers.scram_verifier(longest),
            _raises(lambda: check_password("x" * (postgresql_password + 1), postgresql_password)),
        ),
        "password on MySQL": InputCase(
            mysql_password,
            lambda: mysql_verifiers.sha2_verifier("x" * mysql_password),
            _raises(lambda: check_password("x" * (mysql_password + 1), mysql_password)),
        ),
        "iterations of a SCRAM verifier": InputCase(
            100,
            lambda: postgresql_verifiers.scram_verifier("password", b"salt", iterations),
            _scram(10**9 - 1),
        ),
        "rounds of a caching_sha2_password verifier": InputCase(
            300,
            lambda: mysql_verifiers.sha2_verifier("p" * mysql_password, b"s" * 20, rounds),
            _sha2(4_095_000),
        ),
        "queries of one ConfigMap key": InputCase(
            len(queries),
            lambda: parse_queries.__wrapped__(queries, has_databases=True),  # type: ignore[attr-defined]
            lambda: bool(parse_queries("#" * (queries_limit + 1), has_databases=True).problems),
        ),
        "labelled object without an owner": InputCase(
            MAX_UNOWNED_BYTES,
            lambda: without_unowned_data(owned),
            lambda: not without_unowned_data(unowned).data,  # type: ignore[union-attr]
        ),
        "nested JSON": InputCase(
            6 * MAX_JSON_DEPTH, _decode(_nested(MAX_JSON_DEPTH - 2)), _decode(_nested(MAX_JSON_DEPTH + 1))
        ),
        "nested JSON of 1.5 MB": InputCase(
            1_500_000, _decode(_nested(250_000)), _decode(_nested(250_000), metadata_only(ConfigMap))
        ),
        # Twice the 10,000 levels that the API server accepts.
        "page with nested JSON": InputCase(120_000, _decode_page(_nested(1100)), _decode_page(_nested(20_000))),
        "quantity": InputCase(4096, lambda: Quantity("9" * 4096), _raises(lambda: Quantity("9" * 1_000_000))),
    }
