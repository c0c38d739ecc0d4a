"""Functions to create X.509 certificates; needs the extra ``webhooks``."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Extensions = Sequence[tuple[x509.ExtensionType, bool]]
"""Extensions, each with True if it is critical."""

# The limit of X.520.
_MAX_COMMON_NAME_LENGTH = 64


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new private key on the curve P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def key_to_pem(
    key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8
) -> bytes:
    """The unencrypted private key in PEM."""
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def sign_certificate(
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey],
    validity_period: tuple[datetime, datetime],
    extensions: Extensions,
) -> bytes:
    """A certificate in PEM, signed by the name and key of ``issuer``.

    The key identifiers are added to ``extensions``: Python 3.13 and newer reject a chain without them.
    Source: RFC 5280, sections 4.2.1.1 and 4.2.1.2.
    """
    issuer_name, issuer_key = issuer
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity_period[0].astimezone(UTC))
        .not_valid_after(validity_period[1].astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def subject_name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    """A subject. A common name that is longer than 64 characters is truncated."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    common = x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_MAX_COMMON_NAME_LENGTH])
    return x509.Name([*attributes, common])


def ca_extensions(*, path_length: int | None) -> Extensions:
    """Extensions of a CA certificate."""
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return [(x509.BasicConstraints(ca=True, path_length=path_length), True), (usage, True)]


def server_extensions(names: Sequence[str]) -> Extensions:
    """Extensions of a serving certificate for DNS names and IP addresses."""
    return [
        (x509.SubjectAlternativeName([_general_name(name) for name in names]), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
    ]


def client_extensions() -> Extensions:
    """Extensions of a client certificate."""
    return [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
