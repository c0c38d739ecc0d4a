"""Authorities and certificates through the years, as who verifies them sees them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import Criticality, ExtensionPolicy, PolicyBuilder, Store, VerificationError

from database_support.unit.declared_clusters import declared_cluster
from steersman.meta import ObjectKey
from steersman_databases.features.certificates import authorities as certificates_authorities
from steersman_databases.features.certificates.model import (
    CertificateRequest,
    CertificateSet,
    Data,
    build_certificate_set,
)
from steersman_databases.features.certificates.x509 import create_ca, sign_client, sign_server, validity

START = datetime(2026, 1, 1, tzinfo=UTC)
VIEW = declared_cluster()
NAMES = VIEW.names
RW = "orders-rw.shop.svc"


def server_accepted(bundle: bytes, shown: bytes, name: str, now: datetime) -> bool:
    """Whether a client with ``bundle`` takes who shows ``shown`` for ``name``."""
    builder = PolicyBuilder().store(Store(x509.load_pem_x509_certificates(bundle))).time(now)
    leaf, *others = x509.load_pem_x509_certificates(shown)
    is_address = name[0].isdecimal() or ":" in name
    called = x509.IPAddress(ip_address(name)) if is_address else x509.DNSName(name)
    try:
        builder.build_server_verifier(called).verify(leaf, others)
    except VerificationError:
        return False
    return True


def client_accepted(bundle: bytes, shown: bytes, now: datetime) -> str | None:
    """Who logs in with ``shown`` at a server with ``bundle``; PostgreSQL asks for no alternative names."""
    policy = ExtensionPolicy.permit_all().require_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, None)
    builder = (
        PolicyBuilder()
        .store(Store(x509.load_pem_x509_certificates(bundle)))
        .time(now)
        .extension_policies(ee_policy=policy, ca_policy=ExtensionPolicy.webpki_defaults_ca())
    )
    leaf = x509.load_pem_x509_certificate(shown)
    try:
        builder.build_client_verifier().verify(leaf, [])
    except VerificationError:
        return None
    return str(leaf.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


def years(days: int, every: timedelta) -> list[tuple[datetime, Mapping[ObjectKey, Data]]]:
    """What the Secrets hold from ``START`` on, looked at ``every`` so often."""
    present: Mapping[ObjectKey, Data] = {}
    found: list[tuple[datetime, Mapping[ObjectKey, Data]]] = []
    now = START
    while now <= START + timedelta(days=days):
        present = build_certificate_set(VIEW, CertificateRequest(), present, None, now).data
        found.append((now, present))
        now += every
    return found


def test_rotation_over_four_years_keeps_trust() -> None:
    history = years(4 * 365, timedelta(days=7))
    authorities = set[bytes]()
    leaves = set[bytes]()
    for i, (now, data) in enumerate(history):
        tls, peer, operator = (
            data[k] for k in (NAMES.server_certificate, NAMES.peer_certificate, NAMES.operator_certificate)
        )
        authorities.add(data[NAMES.ca_secret]["server.crt"])
        leaves.add(tls["tls.crt"])
        # Every client whose bundle is at most 180 days old, and every server that has read the Secret so long ago.
        for _, known in history[max(0, i - 25) : i + 1]:
            assert server_accepted(known[NAMES.server_certificate]["ca.crt"], tls["tls.crt"], RW, now)
            clients = known[NAMES.peer_certificate]["ca.crt"]
            assert client_accepted(clients, peer["tls.crt"], now) == "steersman_replication"
            assert client_accepted(clients, operator["tls.crt"], now) == "steersman_operator"
        assert validity(tls["tls.crt"].decode())[1] - now > timedelta(days=22)
        # What logs in is no server, and the other way round.
        assert not server_accepted(tls["ca.crt"], peer["tls.crt"], RW, now)
        assert client_accepted(peer["ca.crt"], tls["tls.crt"], now) is None
    assert len(authorities) == 2, "one succession in four years"
    assert len(leaves) == 24, "a certificate every 60 days or so"


def test_server_certificate_has_all_cluster_names() -> None:
    wish = CertificateRequest(services=("orders-outside",))
    ring = build_certificate_set(VIEW, wish, {}, None, START)
    shown = ring.data[NAMES.server_certificate]["tls.crt"]
    for service in ("orders-rw", "orders-ro", "orders-r", "orders-outside"):
        for suffix in ("", ".shop", ".shop.svc", ".shop.svc.cluster.local"):
            if suffix:
                assert server_accepted(ring.bundle.encode(), shown, f"{service}{suffix}", START)
    assert server_accepted(ring.bundle.encode(), shown, "orders-0-0.orders-headless.shop.svc", START)
    assert not server_accepted(ring.bundle.encode(), shown, "orders-rw.other.svc", START)


def test_added_service_reissues_certificate() -> None:
    former = build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
    data = build_certificate_set(VIEW, CertificateRequest(services=("outside",)), former, None, START).data
    assert data[NAMES.ca_secret] == former[NAMES.ca_secret]
    assert server_accepted(
        former[NAMES.server_certificate]["ca.crt"],
        data[NAMES.server_certificate]["tls.crt"],
        "outside.shop.svc",
        START,
    )
    # Nobody else may be taken for one that is gone.
    assert not called(build_certificate_set(VIEW, CertificateRequest(), data, None, START).data, "outside.shop.svc")


def called(data: Mapping[ObjectKey, Data], name: str) -> bool:
    """Whether a client that calls the servers ``name`` takes them for these."""
    tls = data[NAMES.server_certificate]
    return server_accepted(tls["ca.crt"], tls["tls.crt"], name, START)


def test_additional_names_are_included_while_declared() -> None:
    names = ("DB.example.com", "*.shop.example.com", "203.0.113.7", "2001:DB8:0:0::7")
    wish = CertificateRequest(additional_names=names)
    former = build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
    data = build_certificate_set(VIEW, wish, former, None, START).data
    for name in ("db.example.com", "eu.shop.example.com", "203.0.113.7", "2001:db8::7", RW):
        assert called(data, name)
    assert not called(data, "203.0.113.8")
    assert data[NAMES.ca_secret] == former[NAMES.ca_secret]
    assert build_certificate_set(VIEW, wish, data, None, START).data == data, (
        "however they are written, they are the same"
    )
    fewer = build_certificate_set(VIEW, CertificateRequest(additional_names=names[:1]), data, None, START).data
    assert called(fewer, "db.example.com") and not called(fewer, "203.0.113.7")


def test_nothing_due_changes_nothing() -> None:
    data = build_certificate_set(VIEW, CertificateRequest(pooler=True), {}, None, START).data
    assert (
        build_certificate_set(VIEW, CertificateRequest(pooler=True), data, None, START + timedelta(days=59)).data
        == data
    )


@pytest.mark.parametrize("away", [100, 1000, 1090, 1200, 5000])
def test_rotation_catches_up_after_operator_downtime(away: int) -> None:
    data: Mapping[ObjectKey, Data] = build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
    now = START + timedelta(days=away)
    for _ in range(60):
        data = build_certificate_set(VIEW, CertificateRequest(), data, None, now).data
        tls, peer = data[NAMES.server_certificate], data[NAMES.peer_certificate]
        assert server_accepted(tls["ca.crt"], tls["tls.crt"], RW, now)
        assert client_accepted(peer["ca.crt"], peer["tls.crt"], now)
        now += timedelta(hours=12)


def test_late_successor_waits_for_propagation() -> None:
    data: Mapping[ObjectKey, Data] = build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
    late = START + timedelta(days=3 * 365 - 3)
    first = certificates_authorities.from_data(
        build_certificate_set(VIEW, CertificateRequest(), data, None, late).data[NAMES.ca_secret]
    )
    assert first is not None and first.server.next is not None
    after = certificates_authorities.rotate(first, "orders", late + timedelta(minutes=1))
    assert after == first
    after = certificates_authorities.rotate(first, "orders", late + timedelta(minutes=11))
    assert after.server.current == first.server.next
    assert first.server.current.certificate in after.server.previous


@pytest.mark.parametrize("lost", ["ca", "tls", "peer", "operator"])
def test_lost_secret_is_recreated_without_distrust(lost: str) -> None:
    now = START + timedelta(days=10)
    former = build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
    left = {key: data for key, data in former.items() if key.name != f"orders-{lost}"}
    data = build_certificate_set(VIEW, CertificateRequest(), left, None, now).data
    for bundles, shown in ((former, data), (data, former), (data, data)):
        clients = bundles[NAMES.peer_certificate]["ca.crt"]
        assert server_accepted(
            bundles[NAMES.server_certificate]["ca.crt"], shown[NAMES.server_certificate]["tls.crt"], RW, now
        )
        for key in (NAMES.peer_certificate, NAMES.operator_certificate):
            assert client_accepted(clients, shown[key]["tls.crt"], now)


def test_lost_authorities_keep_clients_until_renewal() -> None:
    former = build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
    data = build_certificate_set(
        VIEW, CertificateRequest(), {k: v for k, v in former.items() if k != NAMES.ca_secret}, None, START
    ).data
    old = former[NAMES.server_certificate]["ca.crt"]
    for days, accepted in ((0, True), (59, True), (61, False)):
        now = START + timedelta(days=days)
        data = build_certificate_set(VIEW, CertificateRequest(), data, None, now).data
        assert server_accepted(old, data[NAMES.server_certificate]["tls.crt"], RW, now) is accepted
        assert server_accepted(
            data[NAMES.server_certificate]["ca.crt"], data[NAMES.server_certificate]["tls.crt"], RW, now
        )


def test_rotation_has_three_overlapping_stages() -> None:
    certificate_keys = (NAMES.server_certificate, NAMES.peer_certificate, NAMES.operator_certificate)

    def without(data: Mapping[ObjectKey, Data], *keys: ObjectKey) -> dict[ObjectKey, Data]:
        return dict(
            build_certificate_set(
                VIEW, CertificateRequest(), {k: v for k, v in data.items() if k not in keys}, None, START
            ).data
        )

    steps = [without({})]
    steps.append(without(steps[-1], NAMES.ca_secret))
    steps.append(without(steps[-1], *certificate_keys))
    left = {k: v for k, v in steps[-1][NAMES.ca_secret].items() if "previous" not in k}
    steps.append(without({**steps[-1], NAMES.ca_secret: left}))
    for former, data in itertools.pairwise(steps):
        for bundles, shown in ((former, data), (data, former)):
            servers, clients = (bundles[k]["ca.crt"] for k in certificate_keys[:2])
            assert server_accepted(servers, shown[NAMES.server_certificate]["tls.crt"], RW, START)
            assert client_accepted(clients, shown[NAMES.operator_certificate]["tls.crt"], START)
    first, last = steps[0], steps[-1]
    assert not server_accepted(last[certificate_keys[0]]["ca.crt"], first[certificate_keys[0]]["tls.crt"], RW, START)
    assert client_accepted(last[certificate_keys[1]]["ca.crt"], first[certificate_keys[2]]["tls.crt"], START) is None


def test_all_secrets_lost_creates_new_authorities() -> None:
    assert (
        build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
        != build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
    )


@pytest.mark.parametrize(
    "damage",
    [
        {"server.key": b"no key"},
        {"server.crt": b""},
        {"client-next.crt": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
        {"client-previous.crt": b"\xff"},
    ],
)
def test_damaged_authorities_count_as_lost(damage: dict[str, bytes]) -> None:
    former = dict(build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data)
    former[NAMES.ca_secret] = {**former[NAMES.ca_secret], **damage}
    data = build_certificate_set(VIEW, CertificateRequest(), former, None, START).data
    assert certificates_authorities.from_data(data[NAMES.ca_secret]) is not None
    assert data[NAMES.server_certificate]["tls.crt"] == former[NAMES.server_certificate]["tls.crt"]


def test_certificate_with_other_key_is_replaced() -> None:
    former = dict(build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data)
    key = former[NAMES.peer_certificate]["tls.key"]
    former[NAMES.server_certificate] = {**former[NAMES.server_certificate], "tls.key": key}
    data = build_certificate_set(VIEW, CertificateRequest(), former, None, START).data
    assert certificates_authorities.read_key_pair(data[NAMES.server_certificate]) is not None


def test_superuser_certificate_is_valid_ten_minutes() -> None:
    ring = build_certificate_set(VIEW, CertificateRequest(), {}, None, START)
    pair = ring.superuser(START)
    clients = ring.data[NAMES.peer_certificate]["ca.crt"]
    assert client_accepted(clients, pair.certificate.encode(), START) == "steersman_superuser"
    assert client_accepted(clients, pair.certificate.encode(), START + timedelta(minutes=11)) is None
    assert pair.key not in repr(ring) and "PRIVATE" not in repr(ring)


# What somebody gives


def given(
    now: datetime = START, names: tuple[str, ...] = ("*.shop.svc",), lifetime: timedelta = timedelta(days=90)
) -> dict[str, bytes]:
    authority = create_ca("of the company", now, timedelta(days=365))
    pair = sign_server(authority, names, now, lifetime)
    return {
        "tls.crt": pair.certificate.encode(),
        "tls.key": pair.key.encode(),
        "ca.crt": authority.certificate.encode(),
    }


WISH = CertificateRequest(custom_secret="company", services=("orders-rw",))


def test_custom_certificate_is_served_and_both_cas_trusted() -> None:
    former = build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
    secret = given()
    ring = build_certificate_set(VIEW, WISH, former, secret, START)
    data = ring.data[NAMES.server_certificate]
    assert (data["tls.crt"], data["tls.key"]) == (secret["tls.crt"], secret["tls.key"])
    for shown in (secret["tls.crt"], former[NAMES.server_certificate]["tls.crt"]):
        assert server_accepted(data["ca.crt"], shown, RW, START)
    assert ring.condition.valid and "company" in ring.condition.message
    # Given no more, the own one is back, and who shows the given one until it has read that is no stranger.
    back = build_certificate_set(VIEW, CertificateRequest(), ring.data, None, START).data[NAMES.server_certificate]
    assert server_accepted(former[NAMES.server_certificate]["ca.crt"], back["tls.crt"], RW, START)


def test_previous_signer_stays_trusted_while_served() -> None:
    """Members read their files one after another: nobody may be a stranger to the others, or to the operator."""
    first, second = given(), given()
    wishes = [(WISH, first), (WISH, second), (CertificateRequest(), None), (WISH, first)]
    data = build_certificate_set(VIEW, CertificateRequest(), {}, None, START).data
    for wish, secret in wishes:
        former, data = data[NAMES.server_certificate], build_certificate_set(VIEW, wish, data, secret, START).data
        # The next reconcile changes nothing: kubelets take minutes.
        data = build_certificate_set(VIEW, wish, data, secret, START).data
        bundle = data[NAMES.server_certificate]["ca.crt"]
        for shown in (former["tls.crt"], data[NAMES.server_certificate]["tls.crt"]):
            assert server_accepted(bundle, shown, RW, START)
    later = START + timedelta(days=366)
    bundle = build_certificate_set(VIEW, CertificateRequest(), data, None, later).data[NAMES.server_certificate][
        "ca.crt"
    ]
    assert first["ca.crt"] not in bundle and second["ca.crt"] not in bundle


def test_custom_certificate_must_cover_required_names() -> None:
    secret = given(names=("orders-rw.shop.svc", "orders-ro.shop.svc"))
    wish = CertificateRequest(custom_secret="company", services=("orders-rw", "orders-ro"))
    assert build_certificate_set(VIEW, wish, {}, secret, START).condition.valid
    more = CertificateRequest(
        custom_secret="company", services=("orders-rw", "orders-r", "public"), additional_names=("db.example.com",)
    )
    words = build_certificate_set(VIEW, more, {}, secret, START).condition.message
    assert "lacks the names orders-r.shop.svc, public.shop.svc, db.example.com. Add them" in words


class _Issued(NamedTuple):
    certificate: bytes
    key: Any
    name: str

    def as_secret(self, *authorities: _Issued, between: Sequence[_Issued] = ()) -> dict[str, bytes]:
        """What a Secret with it holds, with ``between`` beside it and these ``authorities``."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        shown, trusted = (b"".join(i.certificate for i in those) for those in ((self, *between), authorities))
        return {"tls.crt": shown, "tls.key": key, "ca.crt": trusted}


def _issued(
    name: str = RW,
    by: _Issued | None = None,
    key: Any = None,
    *,
    authority: bool = False,
    use: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
) -> _Issued:
    """A certificate as plain as authorities made them once; signed by itself where nobody signs it."""
    own = key or ec.generate_private_key(ec.SECP256R1())
    signer = by or _Issued(b"", own, name)
    subject, issuer = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, called)]) for called in (name, signer.name)
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START - timedelta(days=1))
        .not_valid_after(START + timedelta(days=100))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("*.shop.svc")]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    algorithm = None if isinstance(signer.key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    signed = builder.sign(signer.key, algorithm)
    return _Issued(signed.public_bytes(serialization.Encoding.PEM), own, name)


ROOT = _issued("root", authority=True)
BETWEEN = _issued("between", ROOT, authority=True)
LEAF = _issued(by=BETWEEN)
NO_AUTHORITY = _issued("no authority")
# Two with one key, as when a root that clients do not know yet is signed by one that they know.
CROSS_SIGNED = _issued("between", key=BETWEEN.key, authority=True)


def _of_kind(key: Any) -> dict[str, bytes]:
    authority = _issued("root", key=key, authority=True)
    return _issued(by=authority, key=key).as_secret(authority)


@pytest.mark.parametrize(
    "secret",
    [
        LEAF.as_secret(ROOT, between=[BETWEEN]),
        LEAF.as_secret(ROOT, BETWEEN),
        LEAF.as_secret(CROSS_SIGNED, between=[BETWEEN]),
        LEAF.as_secret(ROOT, CROSS_SIGNED, between=[BETWEEN]),
        NO_AUTHORITY.as_secret(NO_AUTHORITY),
        _of_kind(ed25519.Ed25519PrivateKey.generate()),
        _of_kind(rsa.generate_private_key(65537, 2048)),
        _of_kind(ec.generate_private_key(ec.SECP384R1())),
    ],
    ids=["intermediate shown", "intermediate trusted", "cross-signed", "both", "itself", "Ed25519", "RSA", "P-384"],
)
def test_custom_certificate_accepted_by_clients_is_valid(secret: dict[str, bytes]) -> None:
    finding = build_certificate_set(VIEW, WISH, {}, secret, START).condition
    assert finding.valid, finding.message


def _other_key() -> bytes:
    return given()["tls.key"]


@pytest.mark.parametrize(
    ("secret", "words"),
    [
        (None, "it does not exist"),
        ({}, "tls.crt is missing"),
        ({**given(), "ca.crt": b""}, "ca.crt is missing"),
        ({**given(), "tls.crt": b"hello"}, "tls.crt has no certificate"),
        ({**given(), "tls.crt": b"\xff\xfe"}, "tls.crt is not PEM"),
        ({**given(), "tls.key": b"hello"}, "tls.key has no private key"),
        ({**given(), "tls.key": _other_key()}, "tls.key does not match tls.crt"),
        ({**given(), "ca.crt": given()["ca.crt"]}, "(unable to get local issuer certificate)"),
        (given(START - timedelta(days=100)), "expired at 2025-12-22 00:00 UTC. Renew it"),
        (given(START + timedelta(days=2)), "valid only from 2026-01-02 23:00 UTC on"),
        (LEAF.as_secret(ROOT), "(unable to get local issuer certificate)"),
        (LEAF.as_secret(BETWEEN), "(unable to get issuer certificate)"),
        (_issued(by=ROOT, use=ExtendedKeyUsageOID.CLIENT_AUTH).as_secret(ROOT), "(unsuitable certificate purpose)"),
        (_issued(by=NO_AUTHORITY).as_secret(NO_AUTHORITY), "(invalid CA certificate)"),
        (_issued(by=ROOT, key=rsa.generate_private_key(65537, 1024)).as_secret(ROOT), "ee key too small"),
        (given(names=("*.other.svc",)), "lacks the names orders-rw.shop.svc. Add"),
    ],
)
def test_custom_certificate_errors_are_reported(secret: dict[str, bytes] | None, words: str) -> None:
    served = build_certificate_set(VIEW, WISH, {}, given(), START)
    ring = build_certificate_set(VIEW, WISH, served.data, secret, START)
    assert ring.condition.reason == "SecretInvalid"
    assert ring.condition.message.startswith("Secret company: ") and words in ring.condition.message
    # The former is served on.
    data, former = ring.data[NAMES.server_certificate], served.data[NAMES.server_certificate]
    assert {k: data[k] for k in ("tls.crt", "tls.key")} == {k: former[k] for k in ("tls.crt", "tls.key")}
    assert server_accepted(data["ca.crt"], data["tls.crt"], RW, START)


def test_missing_custom_certificate_serves_issued_one() -> None:
    ring = build_certificate_set(VIEW, WISH, {}, None, START)
    data = ring.data[NAMES.server_certificate]
    assert ring.condition.reason == "SecretInvalid"
    assert server_accepted(data["ca.crt"], data["tls.crt"], RW, START)


def test_expiring_custom_certificate_warns_then_is_replaced() -> None:
    secret = given(lifetime=timedelta(days=30))
    ring: CertificateSet = build_certificate_set(VIEW, WISH, {}, secret, START + timedelta(days=17))
    assert ring.condition.reason == "Expiring"
    # What to do stands with the reason.
    assert ring.condition.message == "Secret company: tls.crt expires at 2026-01-31 00:00 UTC"
    ring = build_certificate_set(VIEW, WISH, ring.data, secret, now := START + timedelta(days=31))
    data = ring.data[NAMES.server_certificate]
    assert ring.condition.reason == "SecretInvalid"
    assert server_accepted(data["ca.crt"], data["tls.crt"], RW, now)


def test_client_certificate_has_no_other_name() -> None:
    ring = build_certificate_set(VIEW, CertificateRequest(), {}, None, START)
    stranger = sign_client(create_ca("x", START, timedelta(days=9)), "steersman_superuser", START, timedelta(9))
    assert client_accepted(ring.data[NAMES.peer_certificate]["ca.crt"], stranger.certificate.encode(), START) is None
