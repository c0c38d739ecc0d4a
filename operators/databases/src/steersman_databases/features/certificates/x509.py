"""Certificates and authorities: ECDSA on P-256, in PEM, with `cryptography`."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from steersman_databases.engines.connection.input_limits import (
    MAX_BUNDLE_CHARACTERS,
    MAX_CERTIFICATE_CHARACTERS,
    MAX_KEY_CHARACTERS,
    MAX_RSA_BITS,
)
from steersman_databases.engines.digest_cache import cached_by_digest
from steersman_databases.engines.server import ClientKeyPair

# Clocks differ.
_BACKDATED = timedelta(hours=1)
# The longest common name that X.520 allows.
_MAX_COMMON_NAME_LENGTH = 64


class UnsupportedKey(ValueError):
    """A private key that is too large to be used."""


ValidityPeriod = tuple[datetime, datetime]


class CertificateKeyPair(Struct, frozen=True):
    """A certificate and its key. PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return f"Pair({common_name(self.certificate)}, expires {self.not_after:%Y-%m-%d})"

    @property
    def not_before(self) -> datetime:
        """Start of the validity."""
        return validity(self.certificate)[0] + _BACKDATED

    @property
    def not_after(self) -> datetime:
        """End of the validity."""
        return validity(self.certificate)[1]

    @property
    def as_client_certificate(self) -> ClientKeyPair:
        """The pair for a client's login."""
        return ClientKeyPair(self.certificate.encode(), self.key.encode())


def create_ca(name: str, now: datetime, lifetime: timedelta) -> CertificateKeyPair:
    """Create an authority that signs certificates, but no authorities.

    Name and time are its subject.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject_name = _name(f"{name[:40]} {now:%Y-%m-%dT%H:%M:%S}")
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
    builder = (
        _builder(subject_name, subject_name, key, key.public_key(), (now - _BACKDATED, now + lifetime))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _sign_and_encode(builder, key, key)


def sign_server(
    authority: CertificateKeyPair, names: Sequence[str], now: datetime, lifetime: timedelta
) -> CertificateKeyPair:
    """Issue a server certificate for these names.

    Names are DNS names, possibly with `*`, and addresses. Clients cannot log in with it.
    """
    alternatives = x509.SubjectAlternativeName([_general_name(n) for n in names])
    return _sign(authority, names[0], now, lifetime, (ExtendedKeyUsageOID.SERVER_AUTH, alternatives))


def sign_client(authority: CertificateKeyPair, user: str, now: datetime, lifetime: timedelta) -> CertificateKeyPair:
    """Issue a client certificate for `user`, which is not valid for servers."""
    return _sign(authority, user, now, lifetime, (ExtendedKeyUsageOID.CLIENT_AUTH, None))


def _sign(
    authority: CertificateKeyPair,
    name: str,
    now: datetime,
    lifetime: timedelta,
    use: tuple[x509.ObjectIdentifier, x509.SubjectAlternativeName | None],
) -> CertificateKeyPair:
    issuer, issuer_key = _load(authority.certificate), _load_ec_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    # Clients do not trust a certificate that outlives its authority.
    span = (now - _BACKDATED, min(now + lifetime, authority.not_after))
    builder = (
        _builder(_name(name), issuer.subject, issuer_key, key.public_key(), span)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use[0]]), critical=False)
    )
    if use[1] is not None:
        builder = builder.add_extension(use[1], critical=False)
    return _sign_and_encode(builder, issuer_key, key)


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    public: ec.EllipticCurvePublicKey,
    span: ValidityPeriod,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(span[0].astimezone(UTC))
        .not_valid_after(span[1].astimezone(UTC))
        # Clients with Python 3.13 or newer reject a chain without the identifiers (RFC 5280, 4.2.1.1 and 4.2.1.2).
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _sign_and_encode(
    builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey
) -> CertificateKeyPair:
    certificate = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return CertificateKeyPair(certificate.decode(), secret.decode())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_MAX_COMMON_NAME_LENGTH])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


# Parsing. All functions raise ValueError if the text is not a certificate or key in PEM.


@cached_by_digest(maxsize=1024)
def validity(certificate: str) -> ValidityPeriod:
    """Return start and end of a certificate's validity."""
    found = _load(certificate)
    return found.not_valid_before_utc, found.not_valid_after_utc


@cached_by_digest(maxsize=1024)
def common_name(certificate: str) -> str:
    """Return the common name of the subject, or "" without one."""
    return next((str(a.value) for a in _load(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


@cached_by_digest(maxsize=1024)
def sans(certificate: str) -> frozenset[str]:
    """Return the DNS names and addresses of a certificate.

    Empty without subject alternative names.
    """
    try:
        found = _load(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(a.value) for a in found.value)


@lru_cache(maxsize=4096)
def canonical_name(name: str) -> str:
    """Return a DNS name or an address in its canonical form."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower().rstrip(".")


def matches_name(certificate: str, name: str) -> bool:
    """Return True if a certificate covers `name`.

    A wildcard matches one label, the leftmost (RFC 6125, 6.4.3).
    """
    names, desired = {canonical_name(n) for n in sans(certificate)}, canonical_name(name)
    first, _, rest = desired.partition(".")
    return desired in names or (first != "" and bool(rest) and f"*.{rest}" in names)


@cached_by_digest(maxsize=1024)
def key_matches(certificate: str, key: str) -> bool:
    """Return True if the key belongs to the certificate.

    A key with a password does not count.
    """
    try:
        return _load_key(key).public_key() == _load(certificate).public_key()
    except TypeError:
        return False


@cached_by_digest(maxsize=1024)
def signed_by(certificate: str, authority: str) -> bool:
    """Return True if `authority` itself signed the certificate."""
    try:
        _load(certificate).verify_directly_issued_by(_load(authority))
    except (InvalidSignature, TypeError, ValueError):
        # Another issuer, or a kind of key that cannot sign.
        return False
    return True


@cached_by_digest(maxsize=16)
def split(bundle: str) -> tuple[str, ...]:
    """Return the certificates of a bundle as separate PEM texts, in order."""
    if len(bundle) > MAX_BUNDLE_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_BUNDLE_CHARACTERS // 1024} KiB. Leave out what clients do not need")
    return tuple(
        c.public_bytes(serialization.Encoding.PEM).decode() for c in x509.load_pem_x509_certificates(bundle.encode())
    )


@cached_by_digest(maxsize=1024)
def fingerprint(certificate: str) -> str:
    """Return the SHA-256 of a certificate, as a handshake shows it."""
    return _load(certificate).fingerprint(hashes.SHA256()).hex()


@cached_by_digest(maxsize=1024)
def _load(certificate: str) -> x509.Certificate:
    if len(certificate) > MAX_CERTIFICATE_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_CERTIFICATE_CHARACTERS // 1024} KiB")
    return x509.load_pem_x509_certificate(certificate.encode())


def _load_key(key: str) -> PrivateKeyTypes:
    """Load a key, whose owner may be hostile.

    The tests of OpenSSL, whether the parts of an RSA key are prime, take minutes for a key that is made for them.
    """
    if len(key) > MAX_KEY_CHARACTERS:
        raise UnsupportedKey(f"it is longer than {MAX_KEY_CHARACTERS // 1024} KiB")
    found = serialization.load_pem_private_key(key.encode(), None, unsafe_skip_rsa_key_validation=True)
    if isinstance(found, rsa.RSAPrivateKey):
        _check_rsa_size(found)
    return found


def _check_rsa_size(key: rsa.RSAPrivateKey) -> None:
    if key.key_size > MAX_RSA_BITS:
        raise UnsupportedKey(f"it has {key.key_size} bits. Use an RSA key of at most {MAX_RSA_BITS} bits, or ECDSA")
    parts = key.private_numbers()
    if any(
        part.bit_length() > key.key_size for part in (parts.p, parts.q, parts.d, parts.dmp1, parts.dmq1, parts.iqmp)
    ):
        raise UnsupportedKey("a part of it is longer than its modulus")


def _load_ec_key(key: str) -> ec.EllipticCurvePrivateKey:
    found = _load_key(key)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the CA is not an elliptic curve key")
    return found
