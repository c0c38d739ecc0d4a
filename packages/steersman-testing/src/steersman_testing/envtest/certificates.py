"""Certificate authority of a test environment. All data is PEM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import PrivateFormat

from steersman.webhook.x509 import (
    Extensions,
    ca_extensions,
    client_extensions,
    key_to_pem,
    new_key,
    server_extensions,
    sign_certificate,
    subject_name,
)

_LIFETIME = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class IssuedKeyPair:
    """A certificate and its private key."""

    certificate: bytes
    key: bytes


def generate_key() -> bytes:
    """A new private key, such as for signing service account tokens."""
    # kube-apiserver reads service account keys in this format.
    return key_to_pem(new_key(), PrivateFormat.TraditionalOpenSSL)


class CertificateAuthority:
    """Signs certificates of the API server and of its users."""

    def __init__(self) -> None:
        self._key = new_key()
        self._name = subject_name("envtest")
        self.certificate = self._issue(self._name, self._key, ca_extensions(path_length=None)).certificate

    def issue_server(self, names: Sequence[str], addresses: Sequence[str]) -> IssuedKeyPair:
        """A serving certificate for DNS ``names`` and IP ``addresses``."""
        return self._issue(subject_name(names[0]), new_key(), server_extensions([*names, *addresses]))

    def issue_client(self, user: str, groups: Sequence[str]) -> IssuedKeyPair:
        """A client certificate for ``user``, the common name, in ``groups``, the organizations."""
        return self._issue(subject_name(user, groups), new_key(), client_extensions())

    def _issue(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extensions: Extensions) -> IssuedKeyPair:
        now = datetime.now(UTC)
        validity_period = (now - timedelta(hours=1), now + _LIFETIME)
        issuer = (self._name, self._key)
        certificate = sign_certificate(subject, key.public_key(), issuer, validity_period, extensions)
        return IssuedKeyPair(certificate, key_to_pem(key, PrivateFormat.TraditionalOpenSSL))
