"""What the Secrets of a cluster should hold: a pure function of what they hold, what is declared, and the date."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from steersman.meta import ObjectKey
from steersman_databases.clusters import certificates
from steersman_databases.clusters.certificates import LIFETIMES, Authorities, ForClient, ForServer, Lifetimes
from steersman_databases.clusters.given import Given, Unfit, judged
from steersman_databases.clusters.x509 import Pair, belongs, fingerprint, split, times
from steersman_databases.engines import Credentials
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.cluster_names import OPERATOR, REPLICATION, SUPERUSER
from steersman_databases.engines.postgresql.hba import POOLER
from steersman_databases.engines.server import Endpoint, Login, Server, TLSMode, Verification

Data = Mapping[str, bytes]

# A given certificate that is not renewed by then is worth a warning.
_SOON = timedelta(days=14)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysWish:
    """What a cluster declares of its keys, beside what its view says.

    Attributes:
        services: names of its Services and poolers, such as there are.
        names: how clients call it besides.
        given: the Secret of ``tls.serverSecret``.
        pooler: whether it has poolers.
        application: whether it is declared with a first database, whose owner gets a Secret.
    """

    services: Sequence[str] = ()
    names: Sequence[str] = ()
    given: str | None = None
    pooler: bool = False
    application: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the condition ``CertificatesValid`` says."""

    reason: Literal["Valid", "Expiring", "SecretInvalid"]
    message: str

    @property
    def valid(self) -> bool:
        return self.reason == "Valid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """Everything a cluster is opened with.

    Attributes:
        data: of each Secret with certificates, in the order in which they are to be written.
        bundle: what clients verify the servers by. PEM.
        served: SHA-256 of the certificate that servers should show.
        login: the operator's.
    """

    authorities: Authorities = field(repr=False)
    data: Mapping[ObjectKey, Data] = field(repr=False)
    bundle: str = field(repr=False)
    served: str
    login: Pair
    finding: Finding

    def superuser(self, now: datetime) -> Pair:
        """A certificate to log in as the superuser with, for the next ten minutes."""
        return certificates.signed_once(SUPERUSER, self.authorities, now)

    def member(self, engine: str, endpoint: Endpoint, login: Login) -> Server:
        """One of the servers, asked by its address: so it is the authority that tells it, not a name."""
        return Server(engine, endpoint, login, Verification(TLSMode.VERIFY_CA, self.bundle.encode()))


def pooler_services(view: ClusterView) -> tuple[str, str]:
    """The Services of the poolers, to the primary and to the replicas."""
    return f"{view.key.name}-pooler-rw", f"{view.key.name}-pooler-ro"


def server_names(view: ClusterView, services: Sequence[str]) -> tuple[str, ...]:
    """Every name under which clients and members call the servers and poolers of a cluster."""
    names, namespace = view.names, view.key.namespace
    roles = [names.service(role).name for role in ("rw", "ro", "r")]
    called = [n for service in (*roles, *services) for n in _forms(service, namespace, view.cluster_domain)]
    return (*called, *_forms(f"*.{names.headless_service.name}", namespace, view.cluster_domain)[1:])


def _forms(service: str, namespace: str, domain: str) -> list[str]:
    scoped = f"{service}.{namespace}"
    return [service, scoped, f"{scoped}.svc", f"{scoped}.svc.{domain}"]


def needed_names(view: ClusterView, wish: KeysWish) -> tuple[str, ...]:
    """Those that a given certificate must be for: what the connection Secrets call, and what is declared.

    Members call each other by address, and ask for the authority only.
    """
    called = (f"{name}.{view.key.namespace}.svc" for name in wish.services)
    return (*called, *wish.names)


def keyring(
    view: ClusterView,
    wish: KeysWish,
    present: Mapping[ObjectKey, Data],
    given: Data | None,
    now: datetime,
    lifetimes: Lifetimes = LIFETIMES,
) -> Keyring:
    """What the Secrets with certificates should hold.

    Args:
        present: what they hold; those that are missing are left out.
        given: what the Secret that ``wish.given`` names holds; None where it is missing.
    """
    names = view.names
    tls = present.get(names.server_certificate, {})
    authorities = _authorities(view, present, now, lifetimes)
    serving, finding = _serving(view, wish, tls, given, authorities, now, lifetimes)

    def client(key: ObjectKey, user: str) -> dict[str, bytes]:
        kept = certificates.pair_in(present.get(key, {}))
        pair = certificates.kept_or_signed(kept, ForClient(user), authorities, now, lifetimes)
        return {"tls.crt": pair.certificate.encode(), "tls.key": pair.key.encode()}

    bundle = serving["ca.crt"]
    operator = client(names.operator_certificate, OPERATOR)
    data: dict[ObjectKey, Data] = {
        names.authorities: certificates.to_data(authorities),
        names.server_certificate: serving,
        names.peer_certificate: {
            **client(names.peer_certificate, REPLICATION),
            "ca.crt": authorities.client.bundle.encode(),
        },
        names.operator_certificate: {**operator, "ca.crt": bundle},
    }
    if wish.pooler:
        key = pooler_certificate(view)
        clients = authorities.client.bundle.encode()
        data[key] = {**client(key, POOLER), "ca.crt": bundle, "clients.crt": clients}
    login = certificates.pair_in(operator)
    assert login is not None
    return Keyring(
        authorities=authorities,
        data=data,
        bundle=bundle.decode(),
        served=fingerprint(serving["tls.crt"].decode()),
        login=login,
        finding=finding,
    )


def pooler_certificate(view: ClusterView) -> ObjectKey:
    """The Secret that poolers log in to the servers with."""
    return ObjectKey(view.key.namespace, f"{view.key.name}-pooler")


def certificate_secrets(view: ClusterView, wish: KeysWish) -> tuple[ObjectKey, ...]:
    """The Secrets that hold certificates, in the order in which they are written."""
    names = view.names
    poolers = (pooler_certificate(view),) if wish.pooler else ()
    return (
        names.authorities,
        names.server_certificate,
        names.peer_certificate,
        names.operator_certificate,
        *poolers,
    )


def _authorities(
    view: ClusterView, present: Mapping[ObjectKey, Data], now: datetime, lifetimes: Lifetimes
) -> Authorities:
    names = view.names
    found = certificates.from_data(present.get(names.authorities, {}))
    if found is not None:
        return certificates.advanced(found, view.key.name, now, lifetimes)
    server, client = (
        present.get(key, {}).get("ca.crt", b"").decode(errors="replace")
        for key in (names.server_certificate, names.peer_certificate)
    )
    return certificates.replaced(server, client, view.key.name, now, lifetimes)


def _serving(
    view: ClusterView,
    wish: KeysWish,
    present: Data,
    given: Data | None,
    authorities: Authorities,
    now: datetime,
    lifetimes: Lifetimes,
) -> tuple[Data, Finding]:
    """The data of the Secret that servers show, and what is to be said of it."""
    own = authorities.server.bundle
    if wish.given is not None:
        try:
            if given is None:
                raise Unfit("it does not exist: create it, of type kubernetes.io/tls and with ca.crt")
            fit = judged(given, needed_names(view, wish), now)
        except Unfit as unfit:
            finding = Finding(reason="SecretInvalid", message=f"Secret {wish.given}: {unfit}")
            if _works(present, now):
                return {**_shown(present), "ca.crt": _bundle(view, present, own, now)}, finding
            return _own(view, wish, present, authorities, now, lifetimes), finding
        served = {"tls.crt": fit.chain.encode(), "tls.key": fit.leaf.key.encode()}
        return {**served, "ca.crt": _bundle(view, present, own + fit.authority, now)}, _given_finding(
            wish.given, fit, now
        )
    data = _own(view, wish, present, authorities, now, lifetimes)
    expires = times(data["tls.crt"].decode())[1]
    return data, Finding(
        reason="Valid", message=f"the servers' certificate is valid until {expires:%Y-%m-%d}, and renewed before"
    )


def _own(
    view: ClusterView, wish: KeysWish, present: Data, authorities: Authorities, now: datetime, lifetimes: Lifetimes
) -> Data:
    purpose = ForServer((*server_names(view, wish.services), *wish.names))
    pair = certificates.kept_or_signed(certificates.pair_in(present), purpose, authorities, now, lifetimes)
    return {
        "tls.crt": pair.certificate.encode(),
        "tls.key": pair.key.encode(),
        "ca.crt": _bundle(view, present, authorities.server.bundle, now),
    }


def _given_finding(name: str, fit: Given, now: datetime) -> Finding:
    expires = fit.leaf.expires
    if expires - now <= _SOON:
        return Finding(reason="Expiring", message=f"Secret {name}: tls.crt expires at {expires:%Y-%m-%d %H:%M} UTC")
    return Finding(
        reason="Valid", message=f"the servers' certificate, from Secret {name}, is valid until {expires:%Y-%m-%d}"
    )


def _works(data: Data, now: datetime) -> bool:
    try:
        certificate = _text(data, "tls.crt")
        return belongs(certificate, _text(data, "tls.key")) and times(certificate)[1] > now
    except ValueError:
        return False


def _shown(data: Data) -> dict[str, bytes]:
    return {key: data[key] for key in ("tls.crt", "tls.key")}


def _bundle(view: ClusterView, present: Data, trusted: str, now: datetime) -> bytes:
    """``trusted``, and whom somebody gave before: some members show what those signed, and others do so no more.

    Nothing tells when all have read their files again, so they stay until they expire. Those of the cluster itself do
    not: which of them are trusted stands beside their keys.
    """
    try:
        former = [c for c in split(_text(present, "ca.crt")) if times(c)[1] > now]
    except ValueError:
        former = []
    given = [c for c in former if not certificates.is_own_server_authority(c, view.key.name)]
    return "".join(sorted({*given, *split(trusted)})).encode()


def _text(data: Data, key: str) -> str:
    return data.get(key, b"").decode(errors="replace")


# Passwords


def generate_password() -> str:
    """A password of 192 random bits, in characters that no shell, URL or configuration file changes."""
    return secrets.token_urlsafe(24)


def credentials_in(data: Data) -> Credentials | None:
    """User name and password in a Secret's data; None where one is missing."""
    username, password = _text(data, "username"), _text(data, "password")
    return Credentials(username, password) if username and password else None
