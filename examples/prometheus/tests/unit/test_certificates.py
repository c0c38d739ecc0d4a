"""Checks of certificates and keys, and their cost."""

from __future__ import annotations

from base64 import b64decode, encodebytes
from math import lcm

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from certificate_files import EC_PARAMETERS, new_pair, with_bytes
from monitoring_objects import prometheus, service_monitor
from monitoring_operator.configuration import Inputs, SourceObject, build
from monitoring_operator.configuration.certificates import check_authorities, check_key
from monitoring_operator.configuration.problems import InvalidObject

# Mersenne primes. OpenSSL needs hours to test the first one.
LARGE_PRIME = 2**44497 - 1
COMPOSITE = (2**521 - 1) * (2**607 - 1)
OTHER_PRIME = 2**1279 - 1
NOT_A_KEY = "refers to content without an unencrypted private key"
NOT_ITS_KEY = "refers to the key of another certificate"


def der(tag: int, body: bytes) -> bytes:
    size = len(body).to_bytes((len(body).bit_length() + 7) // 8 or 1, "big")
    length = bytes([len(body)]) if len(body) < 128 else bytes([0x80 + len(size)]) + size
    return bytes([tag]) + length + body


def integer(number: int) -> bytes:
    return der(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def pem(label: bytes, body: bytes) -> bytes:
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, encodebytes(body), label)


def elements(body: bytes) -> list[bytes]:
    """Split the content of a sequence."""
    found: list[bytes] = []
    while body:
        length, start = body[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(body[2:start], "big")
        found.append(body[: start + length])
        body = body[start + length :]
    return found


def content(element: bytes) -> bytes:
    return element[2 + (element[1] & 0x7F if element[1] & 0x80 else 0) :]


DIFFIE_HELLMAN = der(0x30, bytes.fromhex("06092a864886f70d010301") + der(0x30, integer(LARGE_PRIME) + integer(2)))


def diffie_hellman_certificate() -> bytes:
    signed, *rest = elements(content(b64decode(b"".join(new_pair()[0].strip().splitlines()[1:-1]))))
    fields = elements(content(signed))
    fields[6] = der(0x30, DIFFIE_HELLMAN + der(3, b"\0" + integer(4)))
    return pem(b"CERTIFICATE", der(0x30, der(0x30, b"".join(fields)) + b"".join(rest)))


def rsa_key(*, wrong: int = 0) -> bytes:
    p, q, e = COMPOSITE, OTHER_PRIME, 65537
    d = pow(e, -1, lcm(p - 1, q - 1))
    numbers = (0, p * q, e, d + wrong, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    return pem(b"RSA PRIVATE KEY", der(0x30, b"".join(map(integer, numbers))))


def test_authority_of_another_algorithm_is_not_loaded() -> None:
    with pytest.raises(InvalidObject, match="without a valid certificate"):
        check_authorities("ca", diffie_hellman_certificate() * 4)


def test_key_of_another_algorithm_is_not_loaded() -> None:
    key = pem(b"PRIVATE KEY", der(0x30, integer(0) + DIFFIE_HELLMAN + der(4, integer(12345))))
    with pytest.raises(InvalidObject, match=NOT_A_KEY):
        check_key("keySecret", key, new_pair()[0])


@pytest.mark.parametrize(("wrong", "problem"), [(0, NOT_ITS_KEY), (2, NOT_A_KEY)])
def test_rsa_key_is_checked_without_prime_tests(wrong: int, problem: str) -> None:
    """A composite factor passes, as with Go. Inconsistent numbers do not."""
    with pytest.raises(InvalidObject, match=problem):
        check_key("keySecret", rsa_key(wrong=wrong), new_pair()[0])


CERTIFICATE, KEY = new_pair()
OTHER_CERTIFICATE, OTHER_KEY = new_pair()
_, ENCRYPTED_KEY = new_pair(password="secret")
UNKNOWN_VERSION = with_bytes(CERTIFICATE, b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07")
"""Certificate for which the library raises InvalidVersion, an Exception."""
ED25519_KEY = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
INTERNAL_ERROR = with_bytes(ED25519_KEY, b"\x2b\x65\x70", b"\x2b\x65\x71")
"""Key of Ed448 that is too short. The library raises InternalError."""
UNSUPPORTED = new_pair(ec.SECP256K1())
"""Go has no such curve."""


def tls_problem(**contents: bytes) -> str:
    """Return the problem of an endpoint with these keys of a Secret."""
    secret = {name: {"secret": {"name": "tls", "key": name}} for name in ("ca", "cert") if name in contents}
    key = {"keySecret": {"name": "tls", "key": "key"}} if "key" in contents else {}
    monitor = service_monitor("s", {"port": "web", "tlsConfig": secret | key})
    source = SourceObject("Secret", "default", "tls")
    declared = build(Inputs(prometheus=prometheus(), service_monitors=[monitor], contents={source: contents}))
    return str(declared.problems.get((type(monitor), monitor.key), ""))


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ({"ca": b""}, "ca.secret refers to content without a valid certificate. Store a certificate in PEM."),
        ({"ca": b"certificate"}, "ca.secret refers to content without a valid certificate."),
        ({"ca": KEY}, "ca.secret refers to content without a valid certificate."),
        ({"cert": b"certificate", "key": KEY}, "cert.secret refers to content without a valid certificate."),
        ({"cert": CERTIFICATE, "key": b"key"}, "keySecret refers to content without an unencrypted private key."),
        ({"cert": CERTIFICATE, "key": ENCRYPTED_KEY}, "keySecret refers to content without an unencrypted private"),
        ({"cert": CERTIFICATE, "key": OTHER_KEY}, "keySecret refers to the key of another certificate."),
        ({"ca": UNSUPPORTED[0]}, "ca.secret refers to content without a valid certificate."),
        (
            {"cert": UNSUPPORTED[0], "key": UNSUPPORTED[1]},
            "cert.secret refers to content without a valid certificate.",
        ),
        ({"ca": CERTIFICATE + b"#" * 200_000}, "ca.secret has over 131072 bytes"),
        ({"ca": UNKNOWN_VERSION}, "ca.secret refers to content without a valid certificate."),
        (
            {"cert": CERTIFICATE, "key": INTERNAL_ERROR},
            "keySecret refers to content without an unencrypted private key.",
        ),
    ],
)
def test_certificate_that_prometheus_rejects_names_field(contents: dict[str, bytes], problem: str) -> None:
    found = tls_problem(**contents)
    assert found.startswith(f"spec.endpoints[0].tlsConfig.{problem}")
    assert "BEGIN" not in found


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(CERTIFICATE.strip() + CERTIFICATE, id="two without a line feed"),
        pytest.param(b" ".join(CERTIFICATE.split(b"\n")), id="spaces for line feeds"),
        pytest.param(b"\r".join(CERTIFICATE.split(b"\n")), id="carriage returns"),
        pytest.param(b"".join(CERTIFICATE.split(b"\n")), id="one line"),
        pytest.param(b"".join(b"  " + line + b"\n" for line in CERTIFICATE.splitlines()), id="indented"),
        pytest.param(b'"' + CERTIFICATE.strip() + b'"', id="quoted"),
        pytest.param(b"\xef\xbb\xbf" + CERTIFICATE, id="byte order mark"),
        pytest.param(b"ca: " + CERTIFICATE, id="text before"),
        pytest.param(CERTIFICATE.strip() + b" # ca", id="text behind"),
        pytest.param(CERTIFICATE.replace(b"-----\n", b"-----\nProc-Type: 4\n\n", 1), id="header"),
    ],
)
def test_certificate_in_malformed_pem_names_field(content: bytes) -> None:
    problem = "spec.endpoints[0].tlsConfig.ca.secret refers to content without a valid certificate."
    assert tls_problem(ca=content).startswith(problem)


@pytest.mark.parametrize(
    "contents",
    [
        {"ca": CERTIFICATE.replace(b"\n", b"\r\n")},
        {"ca": CERTIFICATE.replace(b"\n", b" \n").strip()},
        {"ca": b"subject=x\n" + CERTIFICATE},
        {"ca": b"# two of them\n" + CERTIFICATE + OTHER_CERTIFICATE},
        {"ca": CERTIFICATE.replace(b"M", b"!") + OTHER_CERTIFICATE},
        {"cert": CERTIFICATE + OTHER_CERTIFICATE, "key": EC_PARAMETERS + KEY},
        {"ca": OTHER_CERTIFICATE, "cert": CERTIFICATE, "key": KEY},
    ],
)
def test_certificate_that_prometheus_accepts_has_no_problem(contents: dict[str, bytes]) -> None:
    assert tls_problem(**contents) == ""
