"""Checks of certificates and keys.

promtool does not read them. A server with an invalid one does not scrape its targets, or rejects the reload for all
monitors. Source: ``NewTLSConfig`` in prometheus/common.
"""

from __future__ import annotations

import re
from base64 import b64decode

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import PublicKeyAlgorithmOID as Algorithm

from monitoring_operator.configuration.problems import InvalidObject

_NO_CERTIFICATE = "refers to content without a valid certificate"
_CURVES = (ec.SECP224R1, ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_FORMAT = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
# OpenSSL tests numbers of other algorithms for primes, which may block all threads for minutes.
_ALGORITHMS = (Algorithm.RSAES_PKCS1_v1_5, Algorithm.RSASSA_PSS, Algorithm.EC_PUBLIC_KEY, Algorithm.ED25519)
_LENGTH = rb"(?:[\0-\x7f]|\x81.|\x82..|\x83...)"
# PKCS #8 with RSA, EC or Ed25519. Source: RFC 5958.
_PKCS8 = re.compile(
    rb"0%b\x02\x01[\0\1]0%b\x06(?:%b)"
    % (
        _LENGTH,
        _LENGTH,
        rb"\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01|\x07\x2a\x86\x48\xce\x3d\x02\x01|\x03\x2b\x65\x70",
    ),
    re.DOTALL,
)
_MAX_RSA_BITS = 16384
# Go requires the markers on lines of their own. Prometheus ignores certificates with headers.
_BLOCK = rb"^-----BEGIN %b-----[ \t\r]*\n[A-Za-z0-9+/= \t\r\n]+?\n-----END %b-----[ \t\r]*$"
_CERTIFICATE = re.compile(_BLOCK % (rb"CERTIFICATE", rb"CERTIFICATE"), re.MULTILINE)
_PRIVATE_KEY = re.compile(_BLOCK % (rb"([A-Z ]*)PRIVATE KEY", rb"\1PRIVATE KEY"), re.MULTILINE)


def check_authorities(field: str, content: bytes) -> None:
    """Require at least one valid certificate, as Prometheus does.

    Raises:
        InvalidObject: there is none.
    """
    if not any(_load(block) for block in _CERTIFICATE.findall(content)):
        raise InvalidObject(field, _NO_CERTIFICATE, "Store a certificate in PEM.")


def check_certificate(field: str, content: bytes) -> None:
    """Require that the first certificate is valid.

    Raises:
        InvalidObject: it is not, or there is none.
    """
    if _load(content) is None:
        raise InvalidObject(field, _NO_CERTIFICATE, "Store a certificate in PEM.")


def check_key(field: str, content: bytes, certificate: bytes) -> None:
    """Require the private key of a valid certificate.

    Raises:
        InvalidObject: the key is malformed or encrypted, or belongs to another certificate.
    """
    loaded, public_key = _load(certificate), _public_key(content)
    if public_key is None:
        problem = "refers to content without an unencrypted private key"
        raise InvalidObject(field, problem, "Store the key of the certificate in PEM.")
    if loaded is None or loaded.public_key().public_bytes(*_FORMAT) != public_key:
        raise InvalidObject(field, "refers to the key of another certificate", "Store the key of the certificate.")


def _is_supported(key: object) -> bool:
    """Return True if Go, hence Prometheus, supports such keys.

    Source: Go documentation, package crypto/x509, ParsePKIXPublicKey.
    """
    if isinstance(key, ec.EllipticCurvePublicKey):
        return isinstance(key.curve, _CURVES)
    return isinstance(key, rsa.RSAPublicKey | ed25519.Ed25519PublicKey)


def _load(content: bytes) -> x509.Certificate | None:
    """Return the first certificate, or None if Go rejects it."""
    if (block := _CERTIFICATE.search(content)) is None:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(block[0])
        if certificate.public_key_algorithm_oid not in _ALGORITHMS:
            return None
        # They are decoded when they are read.
        _ = certificate.subject, certificate.issuer, certificate.extensions
        is_valid = certificate.serial_number >= 0 and _is_supported(certificate.public_key())
        return certificate if is_valid else None
    except Exception:
        # Some errors of the library have no base class. One would stop all reconciles of the Prometheus.
        return None


def _public_key(content: bytes) -> bytes | None:
    """Return the public key of the first private key, or None."""
    # Other blocks may precede it, such as EC PARAMETERS.
    if (block := _PRIVATE_KEY.search(content)) is None:
        return None
    try:
        if block[1] == b"" and not _PKCS8.match(b64decode(b"".join(block[0].split(b"\n")[1:-1]))):
            return None
        # OpenSSL would test the primes, which Go does not.
        key = load_pem_private_key(block[0], password=None, unsafe_skip_rsa_key_validation=True)
        if isinstance(key, rsa.RSAPrivateKey) and not _is_consistent(key):
            return None
        return key.public_key().public_bytes(*_FORMAT)
    except Exception:
        # As above.
        return None


def _is_consistent(key: rsa.RSAPrivateKey) -> bool:
    """Check an RSA key as Go does, without testing primes."""
    if key.key_size > _MAX_RSA_BITS:
        return False
    numbers = key.private_numbers()
    p, q, d, e = numbers.p, numbers.q, numbers.d, numbers.public_numbers.e
    return (
        p * q == numbers.public_numbers.n
        and (d * e - 1) % (p - 1) == (d * e - 1) % (q - 1) == 0
        and (numbers.dmp1, numbers.dmq1, numbers.iqmp * q % p) == (d % (p - 1), d % (q - 1), 1)
    )
