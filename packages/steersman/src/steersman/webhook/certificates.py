"""Certificates of the webhook server, and the state machine of their rotation.

Each serving certificate has a CA of its own, whose key is discarded after signing. A stolen Secret therefore cannot
sign further certificates, and CAs are rotated together with their certificates.

``next_state`` advances a ``CertificateState`` by one step. Each step is one write of one Secret, so that another
process can continue after a crash. The steps of a rotation are::

    initial      a CA and its certificate
    prepared     the next certificate exists, and its CA is in the CA bundle
    promoted     the next certificate is served, once the bundle has propagated; the previous CA stays in the bundle
    retired      the previous CA is removed from the bundle, once all replicas serve the new certificate
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from steersman.errors import ConfigurationError

# Allows for clock skew between the replicas and the API server.
_BACKDATE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Times of the certificate rotation.

    Attributes:
        lifetime: validity of a certificate. The next one is prepared when a third of it is left.
        propagation: time that a new CA is in the bundle before its certificate is served. API servers read webhook
            configurations some time after they are written.
        grace: time that the previous CA stays in the bundle after a promotion. A replica that has not read the Secret
            for half of it is not ready.
    """

    lifetime: timedelta = timedelta(days=90)
    propagation: timedelta = timedelta(minutes=5)
    grace: timedelta = timedelta(hours=1)


class KeyPair(Struct, frozen=True):
    """A certificate, its private key and its CA, in PEM."""

    certificate: str
    key: str
    ca_certificate: str

    def __repr__(self) -> str:
        return f"KeyPair({validity(self.certificate)[1]:%Y-%m-%d})"

    @property
    def issued_at(self) -> datetime:
        """Time of issue."""
        return validity(self.certificate)[0] + _BACKDATE

    @property
    def expires_at(self) -> datetime:
        """End of the validity."""
        return validity(self.certificate)[1]


class CertificateState(Struct, frozen=True):
    """Content of the Secret.

    Attributes:
        current: the pair that is served.
        next: the pair that will be served after the next promotion.
        previous_ca: CA of the pair that was served before; empty once it is removed from the bundle.
        promoted_at: time of the promotion of ``current``, while there is a ``previous_ca``.
    """

    current: KeyPair
    next: KeyPair | None = None
    previous_ca: str = ""
    promoted_at: datetime | None = None

    @property
    def ca_bundle(self) -> str:
        """All trusted CAs in PEM. A promotion does not change it."""
        next_ca = self.next.ca_certificate if self.next is not None else ""
        return "".join(sorted({self.current.ca_certificate, next_ca, self.previous_ca}))


def next_state(
    state: CertificateState | None, now: datetime, names: Sequence[str], rotation: Rotation, *, propagated: bool
) -> CertificateState | None:
    """The next state, or None if nothing is due at ``now``.

    Args:
        names: DNS names and IP addresses of the server.
        propagated: True if all webhook configurations have had the whole bundle for ``rotation.propagation``.
    """
    if state is None:
        return CertificateState(issue(names, now, rotation.lifetime))
    current, next_pair = state.current, state.next
    if current.expires_at <= now:
        # Clients reject the expired certificate anyway, so nothing has to propagate first.
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
    """``state`` with a new next certificate."""
    # During an upgrade, replicas of two releases may use different names: one certificate covers both.
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
    """The data of a Secret of type ``kubernetes.io/tls``. ``ca.crt`` is the CA bundle."""
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
    """Parse the data of the Secret.

    Returns None if it is incomplete or inconsistent.
    """
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
    """Issue a server certificate for ``names`` from a new CA.

    The key of the CA is discarded, so that the CA cannot sign another certificate.

    Raises:
        ConfigurationError: the extra ``webhooks`` is not installed.
    """
    try:
        from steersman.webhook import x509
    except ImportError as error:
        raise ConfigurationError(
            f"webhook certificates need the package cryptography: install steersman[webhooks] ({error})"
        ) from error
    validity_period = (now - _BACKDATE, now + lifetime)
    ca_key, key = x509.new_key(), x509.new_key()
    ca_name = x509.subject_name(f"{names[0]} authority {now:%Y-%m-%dT%H:%M:%S}")
    issuer = (ca_name, ca_key)
    ca_certificate = x509.sign_certificate(
        ca_name, ca_key.public_key(), issuer, validity_period, x509.ca_extensions(path_length=0)
    )
    certificate = x509.sign_certificate(
        x509.subject_name(names[0]), key.public_key(), issuer, validity_period, x509.server_extensions(names)
    )
    return KeyPair(certificate.decode(), x509.key_to_pem(key).decode(), ca_certificate.decode())


def covers_names(pair: KeyPair, names: Sequence[str]) -> bool:
    """Return True if the certificate is valid for all ``names``."""
    return set(names) <= subject_alternative_names(pair.certificate)


@lru_cache(maxsize=16)
def validity(certificate: str) -> tuple[datetime, datetime]:
    """Start and end of the validity of a PEM certificate. Raises ValueError if it cannot be parsed."""
    from cryptography import x509

    parsed = x509.load_pem_x509_certificate(certificate.encode())
    return parsed.not_valid_before_utc, parsed.not_valid_after_utc


@lru_cache(maxsize=16)
def subject_alternative_names(certificate: str) -> frozenset[str]:
    """DNS names and IP addresses of a PEM certificate."""
    from cryptography import x509

    extensions = x509.load_pem_x509_certificate(certificate.encode()).extensions
    alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return frozenset(str(a.value) for a in alternatives)


@lru_cache(maxsize=16)
def _key_matches(certificate: str, key: str) -> bool:
    """Return True if ``key`` belongs to ``certificate``. Raises ValueError if one cannot be parsed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    public_key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    try:
        return serialization.load_pem_private_key(key.encode(), None).public_key() == public_key
    except TypeError:
        # The key is encrypted.
        return False
