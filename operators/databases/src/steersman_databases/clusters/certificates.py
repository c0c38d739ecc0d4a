"""The two authorities of a cluster, what they sign, and how one follows another.

The *server* authority signs what servers and poolers show, the *client* authority what Patroni, replication, poolers
and the operator log in with. Apart, since what logs in must never be able to be a server.

Nothing is remembered but the certificates: each step is one write, derived from their dates.

    trust the next   an authority's successor is made, and is in the bundles, ``trusted_ahead`` before it signs
    serve it         it signs what is renewed from then on; what the former signed is shown until its own renewal
    forget           the former is in the bundles until it expires

So a certificate is renewed when a third of it is left, whoever signed it, and a client that reads the bundle once in
``trusted_ahead`` never notices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from steersman_databases.clusters.x509 import (
    Pair,
    belongs,
    canonical,
    make_authority,
    names_in,
    sign_client,
    sign_server,
    signed_by,
    split,
    subject,
    times,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """How long what is valid.

    Attributes:
        certificate: of servers and clients; renewed when a third of it is left.
        authority: from its making, not from when it begins to sign.
        trusted_ahead: how long a successor is in the bundles before it signs.
        settling: how long a new authority, for which there was no time to be trusted ahead, is in the bundles before
            it replaces what still works: kubelets bring a changed Secret into a pod within two minutes.
        signed_once: of a superuser's, which is signed for one use and kept nowhere.
    """

    certificate: timedelta = timedelta(days=90)
    authority: timedelta = timedelta(days=3 * 365)
    trusted_ahead: timedelta = timedelta(days=180)
    settling: timedelta = timedelta(minutes=10)
    signed_once: timedelta = timedelta(minutes=10)


LIFETIMES = Lifetimes()


class Line(Struct, frozen=True):
    """One authority with its successor and its predecessors.

    Attributes:
        current: signs.
        next: will sign, and is trusted already.
        former: certificates that are trusted still.
    """

    current: Pair
    next: Pair | None = None
    former: tuple[str, ...] = ()

    @property
    def trusted(self) -> tuple[str, ...]:
        """Every authority in the bundle, in an order that a succession does not change."""
        following = () if self.next is None else (self.next.certificate,)
        return tuple(sorted({self.current.certificate, *following, *self.former}))

    @property
    def bundle(self) -> str:
        """What who verifies is given. PEM."""
        return "".join(self.trusted)


class Authorities(Struct, frozen=True):
    """Both lines of a cluster: all that the Secret ``<cluster>-ca`` holds."""

    server: Line
    client: Line


def first(cluster: str, now: datetime, lifetimes: Lifetimes = LIFETIMES) -> Authorities:
    """The authorities of a new cluster."""
    return replaced("", "", cluster, now, lifetimes)


def replaced(
    server_bundle: str, client_bundle: str, cluster: str, now: datetime, lifetimes: Lifetimes = LIFETIMES
) -> Authorities:
    """New authorities for those whose keys are lost; what is found of them in the bundles stays trusted."""
    return Authorities(
        server=Line(_authority(cluster, "server", now, lifetimes), former=_living(server_bundle, now)),
        client=Line(_authority(cluster, "client", now, lifetimes), former=_living(client_bundle, now)),
    )


def advanced(authorities: Authorities, cluster: str, now: datetime, lifetimes: Lifetimes = LIFETIMES) -> Authorities:
    """``authorities`` after the next step that is due at ``now``; equal where none is."""
    return Authorities(
        server=_advanced(authorities.server, (cluster, "server"), now, lifetimes),
        client=_advanced(authorities.client, (cluster, "client"), now, lifetimes),
    )


# So late is a successor late: it signs now, whoever knows it.
_LATE = timedelta(days=7)


def _advanced(line: Line, title: tuple[str, str], now: datetime, lifetimes: Lifetimes) -> Line:
    living = tuple(c for c in line.former if times(c)[1] > now)
    following = line.next if line.next is not None and line.next.expires > now else None
    if line.current.expires <= now:
        return Line(following or _authority(*title, now, lifetimes), former=living)
    if living != line.former:
        return replace(line, former=living)
    left = line.current.expires - now
    if following is None:
        if left > lifetimes.certificate + lifetimes.trusted_ahead:
            return line
        return replace(line, next=_authority(*title, now, lifetimes))
    known = now - following.issued
    if known >= lifetimes.trusted_ahead or (left <= _LATE and known >= lifetimes.settling):
        return Line(following, former=(*living, line.current.certificate))
    return line


def _authority(cluster: str, line: str, now: datetime, lifetimes: Lifetimes) -> Pair:
    return make_authority(f"{line} {cluster}", now, lifetimes.authority)


def is_own_server_authority(certificate: str, cluster: str) -> bool:
    """Whether it was made here, for this cluster or one whose name begins alike, to sign servers' certificates."""
    return subject(certificate).startswith(f"server {cluster}"[:40])


def _living(bundle: str, now: datetime) -> tuple[str, ...]:
    try:
        return tuple(c for c in split(bundle) if times(c)[1] > now)
    except ValueError:
        return ()


# What they sign


@dataclass(frozen=True, slots=True)
class ForServer:
    """A certificate for servers and poolers that are called by ``names``."""

    names: tuple[str, ...]

    def line(self, authorities: Authorities) -> Line:
        return authorities.server

    def fits(self, certificate: str) -> bool:
        # For none beside them either: who has a name no more would be taken for it.
        return names_in(certificate) == frozenset(map(canonical, self.names))

    def sign(self, authority: Pair, now: datetime, lifetime: timedelta) -> Pair:
        names = dict.fromkeys(map(canonical, self.names))
        return sign_server(authority, [*names], now, lifetime)


@dataclass(frozen=True, slots=True)
class ForClient:
    """A certificate to log in with as ``user``."""

    user: str

    def line(self, authorities: Authorities) -> Line:
        return authorities.client

    def fits(self, certificate: str) -> bool:
        return subject(certificate) == self.user

    def sign(self, authority: Pair, now: datetime, lifetime: timedelta) -> Pair:
        return sign_client(authority, self.user, now, lifetime)


Purpose = ForServer | ForClient


def kept_or_signed(
    present: Pair | None,
    purpose: Purpose,
    authorities: Authorities,
    now: datetime,
    lifetimes: Lifetimes = LIFETIMES,
) -> Pair:
    """``present`` as long as it does what it is for, else a new one."""
    line = purpose.line(authorities)
    if present is not None and _usable(present, purpose, line, now):
        left = present.expires - now
        settled = now - line.current.issued >= lifetimes.settling
        longer = min(now + lifetimes.certificate, line.current.expires) > present.expires
        if left > lifetimes.certificate / 3 or not longer or (not settled and left > lifetimes.settling):
            return present
    return purpose.sign(line.current, now, lifetimes.certificate)


def signed_once(user: str, authorities: Authorities, now: datetime, lifetimes: Lifetimes = LIFETIMES) -> Pair:
    """A certificate for ``user`` that is never stored."""
    return sign_client(authorities.client.current, user, now, lifetimes.signed_once)


def _usable(pair: Pair, purpose: Purpose, line: Line, now: datetime) -> bool:
    try:
        return (
            pair.expires > now
            and belongs(pair.certificate, pair.key)
            and purpose.fits(pair.certificate)
            and any(signed_by(pair.certificate, a) for a in line.trusted)
        )
    except ValueError:
        return False


# The Secret of the authorities


def to_data(authorities: Authorities) -> dict[str, bytes]:
    """``authorities`` as the data of the Secret ``<cluster>-ca``."""
    data: dict[str, str] = {}
    for name, line in (("server", authorities.server), ("client", authorities.client)):
        data |= {f"{name}.crt": line.current.certificate, f"{name}.key": line.current.key}
        if line.next is not None:
            data |= {f"{name}-next.crt": line.next.certificate, f"{name}-next.key": line.next.key}
        if line.former:
            data[f"{name}-former.crt"] = "".join(line.former)
    return {key: value.encode() for key, value in data.items()}


def from_data(data: Mapping[str, bytes]) -> Authorities | None:
    """What ``to_data`` wrote; None where somebody has changed it so that it is of no use."""
    try:
        return Authorities(server=_line(data, "server"), client=_line(data, "client"))
    except (KeyError, ValueError):
        return None


def _line(data: Mapping[str, bytes], name: str) -> Line:
    following = f"{name}-next.crt" in data
    former = data.get(f"{name}-former.crt", b"").decode()
    return Line(
        current=_pair(data, f"{name}.crt", f"{name}.key"),
        next=_pair(data, f"{name}-next.crt", f"{name}-next.key") if following else None,
        former=split(former) if former else (),
    )


def _pair(data: Mapping[str, bytes], certificate: str, key: str) -> Pair:
    pair = Pair(data[certificate].decode(), data[key].decode())
    if not belongs(pair.certificate, pair.key):
        raise ValueError(f"{key} is not the key of {certificate}")
    return pair


def pair_in(data: Mapping[str, bytes]) -> Pair | None:
    """The certificate and the key in a Secret's data; None where one is missing or is none."""
    try:
        return _pair(data, "tls.crt", "tls.key")
    except (KeyError, ValueError):
        return None
