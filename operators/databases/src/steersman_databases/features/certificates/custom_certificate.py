"""Validation of a user's server certificate, with a message per problem."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from steersman_databases.engines.connection.memfd import memory_file
from steersman_databases.engines.digest_cache import cached_by_digest
from steersman_databases.features.certificates.x509 import (
    CertificateKeyPair,
    UnsupportedKey,
    common_name,
    key_matches,
    matches_name,
    split,
    validity,
)

# X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which the module ssl does not define. The caller checks the time.
_NO_CHECK_TIME = 0x200000
# TLS 1.2 needs three, and one more if the server requests another curve.
_MAX_FLIGHTS = 8
_CHAIN_ADVICE = (
    "Put the server certificate with its intermediates into tls.crt, and its CA up to the root into ca.crt"
)


@dataclass(frozen=True, slots=True)
class CustomCertificate:
    """A valid certificate.

    `chain` is served, leaf first. Clients verify it with `authority`.
    """

    leaf: CertificateKeyPair
    chain: str
    authority: str


class InvalidCertificate(Exception):
    """A user's Secret cannot be served.

    The message says what to do, without the Secret's name.
    """


def validate(data: Mapping[str, bytes], names: Sequence[str], now: datetime) -> CustomCertificate:
    """Return the certificate of a Secret of type `kubernetes.io/tls` with `ca.crt`.

    Args:
        names: each must be covered. A wildcard covers one label.

    Raises:
        InvalidCertificate: clients would refuse it.
    """
    chain = _certificates(data, "tls.crt")
    authorities = _certificates(data, "ca.crt")
    leaf = CertificateKeyPair(chain[0], _text(data, "tls.key"))
    _check_key(leaf)
    _check_time(chain, now)
    valid = [a for a in authorities if validity(a)[0] <= now < validity(a)[1]]
    if handshake_error := _handshake_error("".join(chain), leaf.key, "".join(valid)):
        raise InvalidCertificate(handshake_error)
    if missing := [n for n in names if not matches_name(chain[0], n)]:
        raise InvalidCertificate(f"tls.crt ({common_name(chain[0])}) lacks the names {', '.join(missing)}. Add them")
    return CustomCertificate(leaf, "".join(chain), "".join(authorities))


def _text(data: Mapping[str, bytes], key: str) -> str:
    if not data.get(key):
        raise InvalidCertificate(f"the key {key} is missing or empty")
    try:
        return data[key].decode()
    except UnicodeDecodeError:
        raise InvalidCertificate(f"{key} is not PEM") from None


def _certificates(data: Mapping[str, bytes], key: str) -> tuple[str, ...]:
    try:
        return split(_text(data, key))
    except ValueError as error:
        raise InvalidCertificate(f"{key} has no certificate in PEM: {error}") from None


def _check_key(leaf: CertificateKeyPair) -> None:
    try:
        if key_matches(leaf.certificate, leaf.key):
            return
    except UnsupportedKey as error:
        raise InvalidCertificate(f"tls.key cannot be used: {error}") from None
    except ValueError:
        raise InvalidCertificate("tls.key has no private key in PEM") from None
    raise InvalidCertificate("tls.key does not match tls.crt, or is protected by a password")


def _check_time(chain: Sequence[str], now: datetime) -> None:
    for certificate in chain:
        begins, ends = validity(certificate)
        if now >= ends:
            raise InvalidCertificate(
                f"{common_name(certificate)} in tls.crt expired at {ends:%Y-%m-%d %H:%M} UTC. Renew it"
            )
        if now < begins:
            raise InvalidCertificate(
                f"{common_name(certificate)} in tls.crt is valid only from {begins:%Y-%m-%d %H:%M} UTC on"
            )


@cached_by_digest(maxsize=256)
def _handshake_error(chain: str, key: str, ca_bundle: str) -> str:
    """Return why clients that trust `ca_bundle` refuse this certificate.

    Empty if they accept it. OpenSSL performs the check with the rules of libpq and the servers. It ignores the time
    and the names.
    """
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname = False
    client.verify_flags |= _NO_CHECK_TIME
    try:
        if ca_bundle:
            client.load_verify_locations(cadata=ca_bundle)
        with memory_file(chain.encode()) as shown, memory_file(key.encode()) as secret:
            server.load_cert_chain(shown, secret)
        _test_handshake(client, server)
    except ssl.SSLCertVerificationError as error:
        return f"tls.crt cannot be verified by ca.crt ({error.verify_message}). {_CHAIN_ADVICE}"
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"servers cannot use tls.crt ({reason}). Provide another certificate and its key"
    return ""


def _test_handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side, server_side = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_MAX_FLIGHTS):
        for side in (client_side, server_side):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            if side is client_side:
                return
