"""Certificates and keys for tests."""

from __future__ import annotations

from base64 import b64decode, encodebytes
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "orders")])
EC_PARAMETERS = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"


def with_bytes(pem: bytes, old: bytes, new: bytes) -> bytes:
    """Return a PEM block whose DER has ``new`` for the first ``old``."""
    first, *body, last = pem.strip().splitlines()
    der = b64decode(b"".join(body))
    assert old in der
    return b"\n".join([first, encodebytes(der.replace(old, new, 1)).strip(), last, b""])


def new_pair(curve: ec.EllipticCurve | None = None, *, password: str = "") -> tuple[bytes, bytes]:
    """Return a self-signed certificate and its key in PEM."""
    key, now = ec.generate_private_key(curve or ec.SECP256R1()), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(_NAME, _NAME, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    encryption: KeySerializationEncryption = NoEncryption()
    if password:
        encryption = BestAvailableEncryption(password.encode())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return certificate.public_bytes(Encoding.PEM), pem
