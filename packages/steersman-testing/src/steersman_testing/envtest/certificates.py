"""Certificate authority of a test environment. All values are PEM."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=7)
_CA_KEY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True, slots=True)
class IssuedKeyPair:
    """A certificate and its private key."""

    certificate: bytes
    key: bytes


def generate_key() -> bytes:
    """Generate a private key, as used to sign service account tokens."""
    return _key_to_pem(ec.generate_private_key(ec.SECP256R1()))


class CertificateAuthority:
    """Signs certificates of servers and clients."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._issuer_name = _subject_name("envtest", ())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._sign(self._issuer_name, self._key, [(constraints, True), (_CA_KEY_USAGE, True)])

    def issue_server(self, names: Sequence[str], addresses: Sequence[str]) -> IssuedKeyPair:
        """Issue a server certificate for DNS names and IP addresses."""
        alternatives = x509.SubjectAlternativeName(
            [*(x509.DNSName(n) for n in names), *(x509.IPAddress(ipaddress.ip_address(a)) for a in addresses)]
        )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        return self._issue(_subject_name(names[0], ()), [(alternatives, False), (usage, False)])

    def issue_client(self, user: str, groups: Sequence[str]) -> IssuedKeyPair:
        """Issue a client certificate: user as common name, groups as organizations."""
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._issue(_subject_name(user, groups), [(usage, False)])

    def _issue(self, subject: x509.Name, extensions: list[tuple[x509.ExtensionType, bool]]) -> IssuedKeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        return IssuedKeyPair(self._sign(subject, key, extensions), _key_to_pem(key))

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
    ) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._issuer_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
        )
        # Python 3.13 rejects chains without key identifiers (RFC 5280, 4.2.1.1 and 4.2.1.2).
        identifiers = (
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )
        for extension, critical in [*extensions, *((i, False) for i in identifiers)]:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _subject_name(name: str, groups: Sequence[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, g) for g in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(encoding, form, serialization.NoEncryption())
