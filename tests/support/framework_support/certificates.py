"""Certificates for tests, and a strict TLS handshake."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class CertificateAuthority:
    """Certificate authority in memory. Certificates and keys are PEM.

    Args:
        issuer: the authority above it. Defaults to none: it signs itself.
    """

    def __init__(self, issuer: CertificateAuthority | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("intermediate authority" if issuer else "test authority")
        signer = issuer or self
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(**dict.fromkeys(_USAGES, False) | {"key_cert_sign": True, "crl_sign": True})
        builder = (
            _builder(self._name, signer._name, self._key, signer._key)
            .add_extension(constraints, critical=True)
            .add_extension(usage, critical=True)
        )
        self.certificate = builder.sign(signer._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, names: Sequence[str] = (), password: bytes | None = None) -> tuple[bytes, bytes]:
        """Issue a certificate and its key.

        Args:
            name: common name.
            names: DNS names of a server.
            password: password that encrypts the key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key, self._key)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False
            )
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        return (
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption),
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    # Python 3.13 rejects certificates without authority key identifier.
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        # Longer than the renewal threshold of the framework.
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority, critical=False)
    )


def strict_handshake(ca_certificate: str, certificate: str, key: str, name: str, directory: Path) -> None:
    """TLS handshake as strict as that of Python 3.13. Raises ssl.SSLError.

    Args:
        ca_certificate: PEM of the trusted authority.
        certificate: PEM of the server certificate.
        key: PEM of its key.
        name: host name that the client verifies.
        directory: directory for temporary files.
    """
    pair = directory / "pair.pem"
    pair.write_text(certificate + key)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(pair)
    strict_handshake_with(serving, ca_certificate, name)


def strict_handshake_with(serving: ssl.SSLContext, ca_certificate: str, name: str) -> None:
    """Like ``strict_handshake``, with an existing server context."""
    trusting = ssl.create_default_context(cadata=ca_certificate)
    # Default of Python 3.13.
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(back, there, server_hostname=name)
    server = serving.wrap_bio(there, back, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() is not None
