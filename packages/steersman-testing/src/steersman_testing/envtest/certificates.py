"""A certificate authority for one test environment, and what it issues. PEM throughout."""

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
_SIGNING = x509.KeyUsage(
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
class Pair:
    """A certificate and its private key."""

    certificate: bytes
    key: bytes


def new_key() -> bytes:
    """A private key of its own, as service account tokens are signed with."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


class Authority:
    """Signs the server's certificate and those of its users."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("envtest", ())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._sign(self._name, self._key, [(constraints, True), (_SIGNING, True)])

    def server(self, names: Sequence[str], addresses: Sequence[str]) -> Pair:
        """For a server that is reached under ``names`` and IP ``addresses``."""
        alternatives = x509.SubjectAlternativeName(
            [*(x509.DNSName(n) for n in names), *(x509.IPAddress(ipaddress.ip_address(a)) for a in addresses)]
        )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        return self._issue(_subject(names[0], ()), [(alternatives, False), (usage, False)])

    def client(self, user: str, groups: Sequence[str]) -> Pair:
        """For ``user``, a member of ``groups``: the certificate's common name and organisations."""
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._issue(_subject(user, groups), [(usage, False)])

    def _issue(self, subject: x509.Name, extensions: list[tuple[x509.ExtensionType, bool]]) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        return Pair(self._sign(subject, key, extensions), _pem(key))

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
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
        )
        # Python 3.13 and newer trust no chain without the identifiers (RFC 5280, 4.2.1.1 and 4.2.1.2).
        identifiers = (
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )
        for extension, critical in [*extensions, *((i, False) for i in identifiers)]:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, g) for g in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(encoding, form, serialization.NoEncryption())
