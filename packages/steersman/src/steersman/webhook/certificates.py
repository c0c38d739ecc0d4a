"""The certificates of a webhook server, and how one follows another.

Each serving certificate has an authority of its own, whose key signs it and is thrown away: what is kept opens one
server and no more, and there is only one way in which certificates are replaced, the same for authorities.

What there is, is a ``CertificateState``, which ``advanced`` moves on by one step at a time. A step is one write of
one Secret, so that a process that ends between two of them leaves nothing half done, and another goes on from there:

    first        an authority and its certificate; nobody trusts it yet, and nobody served before
    prepared     the next certificate; its authority is trusted beside the present one
    promoted     the next one is served, once all know its authority; the former authority is still trusted
    retired      the former authority is trusted no more, once all serve the new certificate
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from steersman.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

# Clocks differ.
_BACKDATE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """When certificates follow each other.

    Attributes:
        lifetime: of a certificate; the next is prepared when a third of it is left.
        settling: how long a new authority must have been known before its certificate is served: API servers read
            their configurations some time after they are written.
        retiring: how long a former authority is trusted after that; a replica that has not read the Secret for half
            of it is not ready.
    """

    lifetime: timedelta = timedelta(days=90)
    propagation: timedelta = timedelta(minutes=5)
    grace: timedelta = timedelta(hours=1)


class KeyPair(Struct, frozen=True):
    """A certificate, its key, and the authority that signed it. PEM."""

    certificate: str
    key: str
    ca_certificate: str

    def __repr__(self) -> str:
        return f"Pair({validity(self.certificate)[1]:%Y-%m-%d})"

    @property
    def issued_at(self) -> datetime:
        """When it was made."""
        return validity(self.certificate)[0] + _BACKDATE

    @property
    def expires_at(self) -> datetime:
        """From when on it is worthless."""
        return validity(self.certificate)[1]


class CertificateState(Struct, frozen=True):
    """What the Secret holds.

    Attributes:
        current: what is served.
        next: what will be.
        former: the authority of what was served before; empty where it is trusted no more.
        promoted: when ``current`` began to be served, while there is a ``former``.
    """

    current: KeyPair
    next: KeyPair | None = None
    previous_ca: str = ""
    promoted_at: datetime | None = None

    @property
    def ca_bundle(self) -> str:
        """All authorities that are to be trusted. PEM, in an order that a promotion does not change."""
        next_ca = self.next.ca_certificate if self.next is not None else ""
        return "".join(sorted({self.current.ca_certificate, next_ca, self.previous_ca}))


def next_state(
    state: CertificateState | None, now: datetime, names: Sequence[str], rotation: Rotation, *, propagated: bool
) -> CertificateState | None:
    """The state that follows ``state`` at ``now``; None where all is well for now.

    Args:
        names: DNS names and IP addresses under which the server is called.
        propagated: whether all configurations have had the whole bundle for as long as ``rotation.settling``.
    """
    if state is None:
        return CertificateState(issue(names, now, rotation.lifetime))
    current, next_pair = state.current, state.next
    if current.expires_at <= now:
        # Nobody gets an answer by it any more, so there is nothing to be careful of.
        usable = next_pair is not None and next_pair.expires_at > now
        return CertificateState(next_pair if next_pair and usable else issue(names, now, rotation.lifetime))
    if state.previous_ca and (state.promoted_at is None or now >= state.promoted_at + rotation.grace):
        return replace(state, previous_ca="", promoted_at=None)
    if next_pair is None:
        is_due = current.expires_at - now <= rotation.lifetime / 3 or not covers_names(current, names)
        return prepare_next(state, now, names, rotation) if is_due and not state.previous_ca else None
    if next_pair.expires_at <= now or not covers_names(next_pair, names):
        return prepare_next(state, now, names, rotation)
    return CertificateState(next_pair, previous_ca=current.ca_certificate, promoted_at=now) if propagated else None


def prepare_next(
    state: CertificateState, now: datetime, names: Sequence[str], rotation: Rotation
) -> CertificateState:
    """``state`` with the next certificate prepared."""
    # Replicas of two releases may disagree on the names for a while: one certificate serves both.
    extra_names = (
        ()
        if covers_names(state.current, names)
        else sorted(subject_alternative_names(state.current.certificate) - set(names))
    )
    return replace(state, next=issue((*names, *extra_names), now, rotation.lifetime))


# The Secret

_CURRENT_KEYS: tuple[str, ...] = ("tls.crt", "tls.key", "authority.crt")
_NEXT_KEYS: tuple[str, ...] = ("next.crt", "next.key", "next-authority.crt")


def to_secret(state: CertificateState) -> dict[str, str]:
    """``state`` as the data of a Secret of type ``kubernetes.io/tls``; ``ca.crt`` is the bundle."""
    data: dict[str, str] = dict(
        zip(_CURRENT_KEYS, (state.current.certificate, state.current.key, state.current.ca_certificate), strict=True)
    )
    if state.next is not None:
        data |= dict(
            zip(_NEXT_KEYS, (state.next.certificate, state.next.key, state.next.ca_certificate), strict=True)
        )
    if state.previous_ca:
        data["former-authority.crt"] = state.previous_ca
    if state.promoted_at is not None:
        data["promoted"] = state.promoted_at.isoformat()
    return data | {"ca.crt": state.ca_bundle}


def from_secret(data: Mapping[str, str]) -> CertificateState | None:
    """The state that ``to_data`` wrote; None where that was not what wrote it, or somebody has changed it."""
    try:
        current = KeyPair(*(data[k] for k in _CURRENT_KEYS))
        next_pair = KeyPair(*(data[k] for k in _NEXT_KEYS)) if _NEXT_KEYS[0] in data else None
        promoted_at = datetime.fromisoformat(data["promoted"]) if "promoted" in data else None
        if not all(_key_matches(p.certificate, p.key) for p in (current, next_pair) if p is not None):
            return None
    except (KeyError, ValueError):
        return None
    return CertificateState(current, next_pair, data.get("former-authority.crt", ""), promoted_at)


# X.509


def issue(names: Sequence[str], now: datetime, lifetime: timedelta) -> KeyPair:
    """A new authority and the one certificate that it signs.

    Raises:
        ConfigurationError: ``steersman[webhooks]`` is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID
    except ImportError as error:
        raise ConfigurationError(f"webhooks make certificates with steersman[webhooks]: {error}") from error
    validity_period = (now - _BACKDATE, now + lifetime)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = _common_name(f"{names[0]} authority {now:%Y-%m-%dT%H:%M:%S}")
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
    ca_certificate = _sign(
        (ca_name, ca_name),
        (ca_key.public_key(), ca_key),
        validity_period,
        [(x509.BasicConstraints(ca=True, path_length=0), True), (usage, True)],
    )
    certificate = _sign(
        (_common_name(names[0]), ca_name),
        (key.public_key(), ca_key),
        validity_period,
        [
            (x509.SubjectAlternativeName([_general_name(n) for n in names]), False),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
        ],
    )
    private_key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate, private_key_pem.decode(), ca_certificate)


def covers_names(pair: KeyPair, names: Sequence[str]) -> bool:
    """Whether ``pair`` is for ``names``, all of them."""
    return set(names) <= subject_alternative_names(pair.certificate)


@lru_cache(maxsize=16)
def validity(certificate: str) -> tuple[datetime, datetime]:
    """From when until when a PEM certificate is valid. Raises ValueError: it is none."""
    from cryptography import x509

    found = x509.load_pem_x509_certificate(certificate.encode())
    return found.not_valid_before_utc, found.not_valid_after_utc


@lru_cache(maxsize=16)
def _key_matches(certificate: str, key: str) -> bool:
    """Whether ``key`` is that of ``certificate``. Raises ValueError: one of them is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    public = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    try:
        return serialization.load_pem_private_key(key.encode(), None).public_key() == public
    except TypeError:
        # It has a password.
        return False


@lru_cache(maxsize=16)
def subject_alternative_names(certificate: str) -> frozenset[str]:
    """DNS names and IP addresses that a PEM certificate is for."""
    from cryptography import x509

    extensions = x509.load_pem_x509_certificate(certificate.encode()).extensions
    alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return frozenset(str(a.value) for a in alternatives)


def _sign(
    names: tuple[x509.Name, x509.Name],
    keys: tuple[ec.EllipticCurvePublicKey, ec.EllipticCurvePrivateKey],
    validity_period: tuple[datetime, datetime],
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    builder = (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(keys[0])
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity_period[0].astimezone(UTC))
        .not_valid_after(validity_period[1].astimezone(UTC))
        # Clients in Python 3.13 and newer trust no chain without the identifiers (RFC 5280, 4.2.1.1 and 4.2.1.2).
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(keys[0]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[1].public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(keys[1], hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _common_name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    # The longest that X.520 allows.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
