"""Desired content of a cluster's Secrets.

It is a pure function of their present content, the declared state, and the date.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from steersman.meta import ObjectKey
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import BACKUP_ROLE, OPERATOR_ROLE, REPLICATION_ROLE, SUPERUSER_ROLE
from steersman_databases.engines.postgresql.config.hba import POOLER_ROLE
from steersman_databases.engines.server import DatabaseServer, Login, ServerEndpoint, TLSMode, Verification
from steersman_databases.features.certificates import authorities as certificates_authorities
from steersman_databases.features.certificates.authorities import (
    LIFETIMES,
    ClientPurpose,
    ClusterCAs,
    Lifetimes,
    ServerPurpose,
)
from steersman_databases.features.certificates.custom_certificate import (
    CustomCertificate,
    InvalidCertificate,
    validate,
)
from steersman_databases.features.certificates.x509 import (
    CertificateKeyPair,
    fingerprint,
    key_matches,
    split,
    validity,
)

Data = Mapping[str, bytes]

# A custom certificate that is not renewed by then causes a warning.
_EXPIRY_WARNING = timedelta(days=14)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """Certificates that a cluster declares, in addition to `DeclaredCluster`.

    Attributes:
        services: names of its Services and poolers.
        additional_names: further names that clients use.
        custom_secret: the Secret of `tls.serverSecret`.
        pooler: it has poolers.
        backup: issue the client certificate of backup Jobs.
        application: it declares a first database, whose owner gets a Secret.
    """

    services: Sequence[str] = ()
    additional_names: Sequence[str] = ()
    custom_secret: str | None = None
    pooler: bool = False
    backup: bool = False
    application: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateCondition:
    """Content of the condition `CertificatesValid`."""

    reason: Literal["Valid", "Expiring", "SecretInvalid"]
    message: str

    @property
    def valid(self) -> bool:
        return self.reason == "Valid"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSet:
    """All certificates of a cluster.

    Attributes:
        data: data of each Secret with certificates, in the order of their writes.
        bundle: PEM certificates with which clients verify the servers.
        served_fingerprint: SHA-256 of the certificate that servers should serve.
        operator_certificate: the operator's certificate for logins.
    """

    cas: ClusterCAs = field(repr=False)
    data: Mapping[ObjectKey, Data] = field(repr=False)
    bundle: str = field(repr=False)
    served_fingerprint: str
    operator_certificate: CertificateKeyPair
    condition: CertificateCondition

    def superuser(self, now: datetime) -> CertificateKeyPair:
        """Return a superuser's certificate that is valid for ten minutes."""
        return certificates_authorities.issue_ephemeral(SUPERUSER_ROLE, self.cas, now)

    def connection_to(self, engine: str, endpoint: ServerEndpoint, login: Login) -> DatabaseServer:
        """Return the connection parameters of one server.

        Connections use its address, so the authority identifies it, and not a name.
        """
        return DatabaseServer(engine, endpoint, login, Verification(TLSMode.VERIFY_CA, self.bundle.encode()))


def pooler_services(declared: DeclaredCluster) -> tuple[str, str]:
    """Return the poolers' Services for the primary and for the replicas."""
    return f"{declared.key.name}-pooler-rw", f"{declared.key.name}-pooler-ro"


def server_sans(declared: DeclaredCluster, services: Sequence[str]) -> tuple[str, ...]:
    """Return all names by which clients and members reach servers and poolers."""
    names, namespace = declared.names, declared.key.namespace
    roles = [names.service(role).name for role in ("rw", "ro", "r")]
    called = [n for service in (*roles, *services) for n in _name_forms(service, namespace, declared.cluster_domain)]
    return (*called, *_name_forms(f"*.{names.headless_service.name}", namespace, declared.cluster_domain)[1:])


def _name_forms(service: str, namespace: str, domain: str) -> list[str]:
    scoped = f"{service}.{namespace}"
    return [service, scoped, f"{scoped}.svc", f"{scoped}.svc.{domain}"]


def required_sans(declared: DeclaredCluster, request: CertificateRequest) -> tuple[str, ...]:
    """Return the names that a custom certificate must cover.

    These are the names in connection Secrets and the declared ones. Members use addresses and verify only the
    authority.
    """
    called = (f"{name}.{declared.key.namespace}.svc" for name in request.services)
    return (*called, *request.additional_names)


def build_certificate_set(
    declared: DeclaredCluster,
    request: CertificateRequest,
    present: Mapping[ObjectKey, Data],
    custom: Data | None,
    now: datetime,
    lifetimes: Lifetimes = LIFETIMES,
) -> CertificateSet:
    """Return the desired content of the Secrets with certificates.

    Args:
        present: their present content. Missing Secrets are left out.
        custom: content of the Secret `request.custom_secret`, or None if it is missing.
    """
    names = declared.names
    tls = present.get(names.server_certificate, {})
    authorities = _cluster_cas(declared, present, now, lifetimes)
    server_certificate, condition = _server_certificate(declared, request, tls, custom, authorities, now, lifetimes)

    def client(key: ObjectKey, user: str) -> dict[str, bytes]:
        kept = certificates_authorities.read_key_pair(present.get(key, {}))
        pair = certificates_authorities.reuse_or_issue(kept, ClientPurpose(user), authorities, now, lifetimes)
        return {"tls.crt": pair.certificate.encode(), "tls.key": pair.key.encode()}

    bundle = server_certificate["ca.crt"]
    operator = client(names.operator_certificate, OPERATOR_ROLE)
    data: dict[ObjectKey, Data] = {
        names.ca_secret: certificates_authorities.to_data(authorities),
        names.server_certificate: server_certificate,
        names.peer_certificate: {
            **client(names.peer_certificate, REPLICATION_ROLE),
            "ca.crt": authorities.client.bundle.encode(),
        },
        names.operator_certificate: {**operator, "ca.crt": bundle},
    }
    if request.pooler:
        key = pooler_certificate(declared)
        client_certificates = authorities.client.bundle.encode()
        data[key] = {**client(key, POOLER_ROLE), "ca.crt": bundle, "clients.crt": client_certificates}
    if request.backup:
        key = names.backup_client_certificate
        data[key] = {**client(key, BACKUP_ROLE), "ca.crt": bundle}
    login = certificates_authorities.read_key_pair(operator)
    assert login is not None
    return CertificateSet(
        cas=authorities,
        data=data,
        bundle=bundle.decode(),
        served_fingerprint=fingerprint(server_certificate["tls.crt"].decode()),
        operator_certificate=login,
        condition=condition,
    )


def pooler_certificate(declared: DeclaredCluster) -> ObjectKey:
    """Return the Secret with which poolers log in to the servers."""
    return ObjectKey(declared.key.namespace, f"{declared.key.name}-pooler")


def certificate_secrets(declared: DeclaredCluster, request: CertificateRequest) -> tuple[ObjectKey, ...]:
    """Return the Secrets with certificates in the order of their writes."""
    names = declared.names
    poolers = (pooler_certificate(declared),) if request.pooler else ()
    backups = (names.backup_client_certificate,) if request.backup else ()
    return (
        names.ca_secret,
        names.server_certificate,
        names.peer_certificate,
        names.operator_certificate,
        *poolers,
        *backups,
    )


def _cluster_cas(
    declared: DeclaredCluster, present: Mapping[ObjectKey, Data], now: datetime, lifetimes: Lifetimes
) -> ClusterCAs:
    names = declared.names
    found = certificates_authorities.from_data(present.get(names.ca_secret, {}))
    if found is not None:
        return certificates_authorities.rotate(found, declared.key.name, now, lifetimes)
    server, client = (
        present.get(key, {}).get("ca.crt", b"").decode(errors="replace")
        for key in (names.server_certificate, names.peer_certificate)
    )
    return certificates_authorities.recreate(server, client, declared.key.name, now, lifetimes)


def _server_certificate(
    declared: DeclaredCluster,
    request: CertificateRequest,
    present: Data,
    custom: Data | None,
    cas: ClusterCAs,
    now: datetime,
    lifetimes: Lifetimes,
) -> tuple[Data, CertificateCondition]:
    """Return the data of the servers' Secret, and the condition."""
    issued = cas.server.bundle
    if request.custom_secret is not None:
        try:
            if custom is None:
                raise InvalidCertificate("it does not exist. Create it with type kubernetes.io/tls and ca.crt")
            certificate = validate(custom, required_sans(declared, request), now)
        except InvalidCertificate as invalid:
            condition = CertificateCondition(
                reason="SecretInvalid", message=f"Secret {request.custom_secret}: {invalid}"
            )
            if _is_valid(present, now):
                return {**_public_part(present), "ca.crt": _bundle(declared, present, issued, now)}, condition
            return _issued_certificate(declared, request, present, cas, now, lifetimes), condition
        served = {"tls.crt": certificate.chain.encode(), "tls.key": certificate.leaf.key.encode()}
        return {
            **served,
            "ca.crt": _bundle(declared, present, issued + certificate.authority, now),
        }, _custom_condition(request.custom_secret, certificate, now)
    data = _issued_certificate(declared, request, present, cas, now, lifetimes)
    expires = validity(data["tls.crt"].decode())[1]
    return data, CertificateCondition(
        reason="Valid", message=f"the server certificate is valid until {expires:%Y-%m-%d} and is renewed before"
    )


def _issued_certificate(
    declared: DeclaredCluster,
    request: CertificateRequest,
    present: Data,
    cas: ClusterCAs,
    now: datetime,
    lifetimes: Lifetimes,
) -> Data:
    purpose = ServerPurpose((*server_sans(declared, request.services), *request.additional_names))
    pair = certificates_authorities.reuse_or_issue(
        certificates_authorities.read_key_pair(present), purpose, cas, now, lifetimes
    )
    return {
        "tls.crt": pair.certificate.encode(),
        "tls.key": pair.key.encode(),
        "ca.crt": _bundle(declared, present, cas.server.bundle, now),
    }


def _custom_condition(name: str, certificate: CustomCertificate, now: datetime) -> CertificateCondition:
    expires = certificate.leaf.not_after
    if expires - now <= _EXPIRY_WARNING:
        return CertificateCondition(
            reason="Expiring", message=f"Secret {name}: tls.crt expires at {expires:%Y-%m-%d %H:%M} UTC"
        )
    return CertificateCondition(
        reason="Valid", message=f"the server certificate from Secret {name} is valid until {expires:%Y-%m-%d}"
    )


def _is_valid(data: Data, now: datetime) -> bool:
    try:
        certificate = _text(data, "tls.crt")
        return key_matches(certificate, _text(data, "tls.key")) and validity(certificate)[1] > now
    except ValueError:
        return False


def _public_part(data: Data) -> dict[str, bytes]:
    return {key: data[key] for key in ("tls.crt", "tls.key")}


def _bundle(declared: DeclaredCluster, present: Data, trusted: str, now: datetime) -> bytes:
    """Return `trusted` with previous custom authorities.

    Some members may still serve certificates that these signed. It is unknown when all members have reloaded their
    files, so these authorities stay until they expire. The cluster's own authorities do not: the CA Secret lists the
    trusted ones.
    """
    try:
        previous = [c for c in split(_text(present, "ca.crt")) if validity(c)[1] > now]
    except ValueError:
        previous = []
    custom = [c for c in previous if not certificates_authorities.is_own_server_ca(c, declared.key.name)]
    return "".join(sorted({*custom, *split(trusted)})).encode()


def _text(data: Data, key: str) -> str:
    return data.get(key, b"").decode(errors="replace")


# Passwords


def generate_password() -> str:
    """Return a password with 192 random bits.

    Its characters need no quoting in shells, URLs and configuration files.
    """
    return secrets.token_urlsafe(24)


def credentials_in(data: Data) -> SqlCredentials | None:
    """Return the credentials in a Secret's data, or None if incomplete."""
    username, password = _text(data, "username"), _text(data, "password")
    return SqlCredentials(username, password) if username and password else None
