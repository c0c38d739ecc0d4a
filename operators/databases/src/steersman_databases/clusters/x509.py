"""Certificates and authorities: ECDSA on P-256, PEM, made and read with ``cryptography``."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from steersman_databases.engines.server import ClientCertificate

# Clocks differ.
_BACKDATED = timedelta(hours=1)
# The longest common name that X.520 allows.
_LONGEST_NAME = 64

Span = tuple[datetime, datetime]


class Pair(Struct, frozen=True):
    """A certificate and its key. PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return f"Pair({subject(self.certificate)}, expires {self.expires:%Y-%m-%d})"

    @property
    def issued(self) -> datetime:
        """When it was made."""
        return times(self.certificate)[0] + _BACKDATED

    @property
    def expires(self) -> datetime:
        """From when on it is worthless."""
        return times(self.certificate)[1]

    @property
    def as_client(self) -> ClientCertificate:
        """What a client logs in with."""
        return ClientCertificate(self.certificate.encode(), self.key.encode())


def make_authority(name: str, now: datetime, lifetime: timedelta) -> Pair:
    """An authority that signs certificates and no further authorities; ``name`` and the moment are its subject."""
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
    return _signed(builder, key, key)


def sign_server(authority: Pair, names: Sequence[str], now: datetime, lifetime: timedelta) -> Pair:
    """A certificate for what answers under ``names`` (DNS names, with ``*`` too, and addresses), not for clients."""
    alternatives = x509.SubjectAlternativeName([_alternative(n) for n in names])
    return _sign(authority, names[0], now, lifetime, (ExtendedKeyUsageOID.SERVER_AUTH, alternatives))


def sign_client(authority: Pair, user: str, now: datetime, lifetime: timedelta) -> Pair:
    """A certificate with which ``user`` logs in, and which no client takes for a server's."""
    return _sign(authority, user, now, lifetime, (ExtendedKeyUsageOID.CLIENT_AUTH, None))


def _sign(
    authority: Pair,
    name: str,
    now: datetime,
    lifetime: timedelta,
    use: tuple[x509.ObjectIdentifier, x509.SubjectAlternativeName | None],
) -> Pair:
    issuer, issuer_key = _loaded(authority.certificate), _private(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    # Nobody trusts what outlives its authority.
    span = (now - _BACKDATED, min(now + lifetime, authority.expires))
    builder = (
        _builder(_name(name), issuer.subject, issuer_key, key.public_key(), span)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use[0]]), critical=False)
    )
    if use[1] is not None:
        builder = builder.add_extension(use[1], critical=False)
    return _signed(builder, issuer_key, key)


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    public: ec.EllipticCurvePublicKey,
    span: Span,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(span[0].astimezone(UTC))
        .not_valid_after(span[1].astimezone(UTC))
        # Clients in Python 3.13 and newer trust no chain without the identifiers (RFC 5280, 4.2.1.1 and 4.2.1.2).
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePrivateKey
) -> Pair:
    certificate = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.decode(), secret.decode())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_NAME])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


# Reading. Everything here raises ValueError for what is no PEM certificate or key.


@lru_cache(maxsize=1024)
def times(certificate: str) -> Span:
    """From when until when a certificate is valid."""
    found = _loaded(certificate)
    return found.not_valid_before_utc, found.not_valid_after_utc


def subject(certificate: str) -> str:
    """The common name of whom a certificate is for; empty where it has none."""
    return next((str(a.value) for a in _loaded(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)), "")


@lru_cache(maxsize=1024)
def names_in(certificate: str) -> frozenset[str]:
    """DNS names and addresses that a certificate is for; none where it has no alternative names."""
    try:
        found = _loaded(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(a.value) for a in found.value)


def canonical(name: str) -> str:
    """A DNS name or an address in the one form in which it is compared."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower().rstrip(".")


def covers(certificate: str, name: str) -> bool:
    """Whether ``name`` is one of a certificate's; a wildcard stands for one label, the leftmost (RFC 6125, 6.4.3)."""
    names, wanted = {canonical(n) for n in names_in(certificate)}, canonical(name)
    first, _, rest = wanted.partition(".")
    return wanted in names or (first != "" and bool(rest) and f"*.{rest}" in names)


@lru_cache(maxsize=1024)
def belongs(certificate: str, key: str) -> bool:
    """Whether ``key`` is that of ``certificate``; not so where a password protects it."""
    try:
        return _any_key(key).public_key() == _loaded(certificate).public_key()
    except TypeError:
        return False


@lru_cache(maxsize=1024)
def signed_by(certificate: str, authority: str) -> bool:
    """Whether ``authority`` signed ``certificate`` itself."""
    try:
        _loaded(certificate).verify_directly_issued_by(_loaded(authority))
    except (InvalidSignature, TypeError, ValueError):
        # Another issuer, or a kind of key that signs nothing.
        return False
    return True


def split(bundle: str) -> tuple[str, ...]:
    """The certificates of a bundle, each as PEM of its own, in order."""
    return tuple(
        c.public_bytes(serialization.Encoding.PEM).decode() for c in x509.load_pem_x509_certificates(bundle.encode())
    )


def fingerprint(certificate: str) -> str:
    """SHA-256 of a certificate, as a handshake shows it too."""
    return _loaded(certificate).fingerprint(hashes.SHA256()).hex()


@lru_cache(maxsize=1024)
def _loaded(certificate: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate.encode())


def _any_key(key: str) -> PrivateKeyTypes:
    return serialization.load_pem_private_key(key.encode(), None)


def _private(key: str) -> ec.EllipticCurvePrivateKey:
    found = _any_key(key)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not one of an elliptic curve")
    return found
