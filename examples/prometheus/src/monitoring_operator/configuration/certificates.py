"""Checks of certificates and keys.

promtool does not read them. A server with an invalid one does not scrape its targets, or rejects the reload for all
monitors. Source: ``NewTLSConfig`` in prometheus/common.
"""

from __future__ import annotations

import re

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from monitoring_operator.configuration.problems import InvalidMonitor

_NO_CERTIFICATE = "refers to content without a valid certificate"
_CURVES = (ec.SECP224R1, ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_FORMAT = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PRIVATE_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.+?-----END \1PRIVATE KEY-----", re.DOTALL)


def check_authorities(field: str, content: bytes) -> None:
    """Require at least one valid certificate, as Prometheus does.

    Raises:
        InvalidMonitor: there is none.
    """
    if not any(_load(block) for block in _CERTIFICATE.findall(content)):
        raise InvalidMonitor(field, _NO_CERTIFICATE, "Store a certificate in PEM.")


def check_certificate(field: str, content: bytes) -> None:
    """Require that the first certificate is valid.

    Raises:
        InvalidMonitor: it is not, or there is none.
    """
    if _load(content) is None:
        raise InvalidMonitor(field, _NO_CERTIFICATE, "Store a certificate in PEM.")


def check_key(field: str, content: bytes, certificate: bytes) -> None:
    """Require the private key of a valid certificate.

    Raises:
        InvalidMonitor: the key is malformed or encrypted, or belongs to another certificate.
    """
    loaded, public_key = _load(certificate), _public_key(content)
    if public_key is None:
        problem = "refers to content without an unencrypted private key"
        raise InvalidMonitor(field, problem, "Store the key of the certificate in PEM.")
    if loaded is None or loaded.public_key().public_bytes(*_FORMAT) != public_key:
        raise InvalidMonitor(field, "refers to the key of another certificate", "Store the key of the certificate.")


def _is_supported(key: object) -> bool:
    """Return True if Go, hence Prometheus, supports such keys.

    Source: Go documentation, package crypto/x509, ParsePKIXPublicKey.
    """
    if isinstance(key, ec.EllipticCurvePublicKey):
        return isinstance(key.curve, _CURVES)
    return isinstance(key, rsa.RSAPublicKey | ed25519.Ed25519PublicKey)


def _load(content: bytes) -> x509.Certificate | None:
    """Return the first certificate, or None."""
    if (block := _CERTIFICATE.search(content)) is None:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(block[0])
        return certificate if _is_supported(certificate.public_key()) else None
    except (ValueError, UnsupportedAlgorithm):
        return None


def _public_key(content: bytes) -> bytes | None:
    """Return the public key of the first private key, or None."""
    # Other blocks may precede it, such as EC PARAMETERS.
    if (block := _PRIVATE_KEY.search(content)) is None:
        return None
    try:
        key = load_pem_private_key(block[0], password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key.public_key().public_bytes(*_FORMAT)
