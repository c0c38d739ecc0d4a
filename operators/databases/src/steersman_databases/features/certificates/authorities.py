"""The two authorities of a cluster, their certificates, and their rotation.

The *server* authority signs certificates of servers and poolers. The *client* authority signs those with which
Patroni, replication, poolers and the operator log in. They are separate, because a client's certificate must never
identify a server.

The certificates are the only state: each step is one write, derived from their dates.

trust the next   the successor of an authority is created and added to the bundles, `overlap` before it signs
use the next     it signs renewed certificates. Those of its predecessor stay in use until their own renewal
remove the last  the predecessor stays in the bundles until it expires

So a certificate is renewed when a third of its lifetime is left, whatever authority signed it. A client that reads
the bundle once within `overlap` never notices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from steersman_databases.features.certificates.x509 import (
    CertificateKeyPair,
    canonical_name,
    common_name,
    create_ca,
    key_matches,
    sans,
    sign_client,
    sign_server,
    signed_by,
    split,
    validity,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Lifetimes of certificates.

    Attributes:
        certificate: of servers and clients. They are renewed when a third of it is left.
        authority: from its creation, not from its first signature.
        overlap: time for which a successor is in the bundles before it signs.
        propagation: time for which an authority without overlap is in the bundles before it replaces a working one.
            Kubelets update a Secret in a pod within two minutes.
        ephemeral: of a superuser's certificate, which is issued for one use and not stored.
    """

    certificate: timedelta = timedelta(days=90)
    authority: timedelta = timedelta(days=3 * 365)
    overlap: timedelta = timedelta(days=180)
    propagation: timedelta = timedelta(minutes=10)
    ephemeral: timedelta = timedelta(minutes=10)


LIFETIMES = Lifetimes()


class RotatingAuthority(Struct, frozen=True):
    """An authority with its successor and its predecessors.

    Attributes:
        current: signs.
        next: will sign, and is trusted already.
        previous: certificates that are still trusted.
    """

    current: CertificateKeyPair
    next: CertificateKeyPair | None = None
    previous: tuple[str, ...] = ()

    @property
    def trusted(self) -> tuple[str, ...]:
        """All authorities of the bundle, in an order that a rotation keeps."""
        successors = () if self.next is None else (self.next.certificate,)
        return tuple(sorted({self.current.certificate, *successors, *self.previous}))

    @property
    def bundle(self) -> str:
        """The bundle for clients and servers that verify. PEM."""
        return "".join(self.trusted)


class ClusterCAs(Struct, frozen=True):
    """Both authorities of a cluster: the content of the Secret `<cluster>-ca`."""

    server: RotatingAuthority
    client: RotatingAuthority


def create(cluster: str, now: datetime, lifetimes: Lifetimes = LIFETIMES) -> ClusterCAs:
    """Create the authorities of a new cluster."""
    return recreate("", "", cluster, now, lifetimes)


def recreate(
    server_bundle: str, client_bundle: str, cluster: str, now: datetime, lifetimes: Lifetimes = LIFETIMES
) -> ClusterCAs:
    """Create new authorities after the loss of their keys.

    Those in the bundles stay trusted.
    """
    return ClusterCAs(
        server=RotatingAuthority(
            _new_authority(cluster, "server", now, lifetimes), previous=_unexpired(server_bundle, now)
        ),
        client=RotatingAuthority(
            _new_authority(cluster, "client", now, lifetimes), previous=_unexpired(client_bundle, now)
        ),
    )


def rotate(cas: ClusterCAs, cluster: str, now: datetime, lifetimes: Lifetimes = LIFETIMES) -> ClusterCAs:
    """Return the authorities after the next due step, or unchanged."""
    return ClusterCAs(
        server=_rotate(cas.server, (cluster, "server"), now, lifetimes),
        client=_rotate(cas.client, (cluster, "client"), now, lifetimes),
    )


# This close to the expiry a successor signs without the full overlap.
_RENEWAL_MARGIN = timedelta(days=7)


def _rotate(
    authority: RotatingAuthority, title: tuple[str, str], now: datetime, lifetimes: Lifetimes
) -> RotatingAuthority:
    unexpired = tuple(c for c in authority.previous if validity(c)[1] > now)
    following = authority.next if authority.next is not None and authority.next.not_after > now else None
    if authority.current.not_after <= now:
        return RotatingAuthority(following or _new_authority(*title, now, lifetimes), previous=unexpired)
    if unexpired != authority.previous:
        return replace(authority, previous=unexpired)
    remaining = authority.current.not_after - now
    if following is None:
        if remaining > lifetimes.certificate + lifetimes.overlap:
            return authority
        return replace(authority, next=_new_authority(*title, now, lifetimes))
    known_certificates = now - following.not_before
    if known_certificates >= lifetimes.overlap or (
        remaining <= _RENEWAL_MARGIN and known_certificates >= lifetimes.propagation
    ):
        return RotatingAuthority(following, previous=(*unexpired, authority.current.certificate))
    return authority


def _new_authority(cluster: str, purpose: str, now: datetime, lifetimes: Lifetimes) -> CertificateKeyPair:
    return create_ca(f"{purpose} {cluster}", now, lifetimes.authority)


def is_own_server_ca(certificate: str, cluster: str) -> bool:
    """Return True if it is a server authority of this operator.

    It belongs to this cluster, or to one whose name has the same beginning.
    """
    return common_name(certificate).startswith(f"server {cluster}"[:40])


def _unexpired(bundle: str, now: datetime) -> tuple[str, ...]:
    try:
        return tuple(c for c in split(bundle) if validity(c)[1] > now)
    except ValueError:
        return ()


# What they sign


@dataclass(frozen=True, slots=True)
class ServerPurpose:
    """A certificate for servers and poolers with these names."""

    names: tuple[str, ...]

    def authority(self, cas: ClusterCAs) -> RotatingAuthority:
        return cas.server

    def matches(self, certificate: str) -> bool:
        # Exactly these names: a certificate must not cover names that were removed.
        return sans(certificate) == frozenset(map(canonical_name, self.names))

    def sign(self, authority: CertificateKeyPair, now: datetime, lifetime: timedelta) -> CertificateKeyPair:
        names = dict.fromkeys(map(canonical_name, self.names))
        return sign_server(authority, [*names], now, lifetime)


@dataclass(frozen=True, slots=True)
class ClientPurpose:
    """A certificate to log in as `user`."""

    user: str

    def authority(self, cas: ClusterCAs) -> RotatingAuthority:
        return cas.client

    def matches(self, certificate: str) -> bool:
        return common_name(certificate) == self.user

    def sign(self, authority: CertificateKeyPair, now: datetime, lifetime: timedelta) -> CertificateKeyPair:
        return sign_client(authority, self.user, now, lifetime)


Purpose = ServerPurpose | ClientPurpose


def reuse_or_issue(
    present: CertificateKeyPair | None,
    purpose: Purpose,
    cas: ClusterCAs,
    now: datetime,
    lifetimes: Lifetimes = LIFETIMES,
) -> CertificateKeyPair:
    """Return the present certificate if it is suitable, or a new one."""
    authority = purpose.authority(cas)
    if present is not None and _usable(present, purpose, authority, now):
        remaining = present.not_after - now
        is_propagated = now - authority.current.not_before >= lifetimes.propagation
        outlives = min(now + lifetimes.certificate, authority.current.not_after) > present.not_after
        if (
            remaining > lifetimes.certificate / 3
            or not outlives
            or (not is_propagated and remaining > lifetimes.propagation)
        ):
            return present
    return purpose.sign(authority.current, now, lifetimes.certificate)


def issue_ephemeral(
    user: str, cas: ClusterCAs, now: datetime, lifetimes: Lifetimes = LIFETIMES
) -> CertificateKeyPair:
    """Return a certificate for `user` that is never stored."""
    return sign_client(cas.client.current, user, now, lifetimes.ephemeral)


def _usable(pair: CertificateKeyPair, purpose: Purpose, authority: RotatingAuthority, now: datetime) -> bool:
    try:
        return (
            pair.not_after > now
            and key_matches(pair.certificate, pair.key)
            and purpose.matches(pair.certificate)
            and any(signed_by(pair.certificate, a) for a in authority.trusted)
        )
    except ValueError:
        return False


# The Secret of the authorities


def to_data(cas: ClusterCAs) -> dict[str, bytes]:
    """Return the authorities as data of the Secret `<cluster>-ca`."""
    data: dict[str, str] = {}
    for name, line in (("server", cas.server), ("client", cas.client)):
        data |= {f"{name}.crt": line.current.certificate, f"{name}.key": line.current.key}
        if line.next is not None:
            data |= {f"{name}-next.crt": line.next.certificate, f"{name}-next.key": line.next.key}
        if line.previous:
            data[f"{name}-previous.crt"] = "".join(line.previous)
    return {key: value.encode() for key, value in data.items()}


def from_data(data: Mapping[str, bytes]) -> ClusterCAs | None:
    """Parse the result of `to_data`. None if it is invalid."""
    try:
        return ClusterCAs(server=_read_authority(data, "server"), client=_read_authority(data, "client"))
    except (KeyError, ValueError):
        return None


def _read_authority(data: Mapping[str, bytes], name: str) -> RotatingAuthority:
    following = f"{name}-next.crt" in data
    previous = data.get(f"{name}-previous.crt", b"").decode()
    return RotatingAuthority(
        current=_read_key_pair(data, f"{name}.crt", f"{name}.key"),
        next=_read_key_pair(data, f"{name}-next.crt", f"{name}-next.key") if following else None,
        previous=split(previous) if previous else (),
    )


def _read_key_pair(data: Mapping[str, bytes], certificate: str, key: str) -> CertificateKeyPair:
    pair = CertificateKeyPair(data[certificate].decode(), data[key].decode())
    if not key_matches(pair.certificate, pair.key):
        raise ValueError(f"{key} is not the key of {certificate}")
    return pair


def read_key_pair(data: Mapping[str, bytes]) -> CertificateKeyPair | None:
    """Return certificate and key of a Secret's data, or None if invalid."""
    try:
        return _read_key_pair(data, "tls.crt", "tls.key")
    except (KeyError, ValueError):
        return None
