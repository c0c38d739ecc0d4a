"""A certificate authority for tests of mutual TLS."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """Issues certificates for a day."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    certificate: bytes

    @classmethod
    def create(cls, name: str) -> Authority:
        key, subject = ec.generate_private_key(ec.SECP256R1()), _name(name)
        builder = _builder(subject, subject, key.public_key())
        own = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return cls(subject, key, own.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[bytes, bytes]:
        """Return a certificate for a name, and its key, in PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name.replace("_", "-"))])
        builder = _builder(_name(name), self.name, key.public_key()).add_extension(names, critical=False)
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        certificate = builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return certificate, key.private_bytes(*pem)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )
