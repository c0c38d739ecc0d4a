"""A certificate authority that issues certificates into PEM files."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, name: str, directory: Path) -> "KeyPair":
        """Return the pair with this name, whose files may not exist."""
        return cls(directory / f"{name}.crt", directory / f"{name}.key")


def write_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    """Write a private key as PEM, readable by its owner only."""
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)


def _name(user: str, group: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _alternative_name(value: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(value))
    except ValueError:
        return x509.DNSName(value)


@dataclass(frozen=True)
class CertificateAuthority:
    """An authority with its key in memory."""

    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, common_name: str, pair: KeyPair) -> "CertificateAuthority":
        """Create a self-signed authority and write it to `pair`."""
        authority = cls(_name(common_name), ec.generate_private_key(ec.SECP256R1()))
        usage = x509.KeyUsage(
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
        builder = authority._builder(authority.name, authority.key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        authority._sign(builder, authority.key, pair)
        return authority

    def issue(self, pair: KeyPair, user: str, group: str | None = None, server: Sequence[str] = ()) -> None:
        """Issue a client certificate, or with `server` names a serving certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(_name(user, group), key)
        if server:
            # etcd's gateway dials itself with its own certificate, so a server is a client too
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_alternative_name(value) for value in server])
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        self._sign(builder, key, pair)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
        )

    def _sign(self, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, pair: KeyPair) -> None:
        certificate = builder.sign(self.key, hashes.SHA256())
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        write_key(key, pair.key)
