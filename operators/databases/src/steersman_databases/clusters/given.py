"""What a certificate that somebody gives a cluster must be: the checks, and the words for each that fails."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from steersman_databases.clusters.x509 import Pair, belongs, covers, split, subject, times
from steersman_databases.engines.in_memory import in_memory

# X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which the module ssl has no name for. The time is the caller's.
_NO_CHECK_TIME = 0x200000
# TLS 1.2 needs three, and one more where the server asks for another curve.
_MOST_FLIGHTS = 8
_WHOLE = (
    "give a certificate for servers and its intermediates in tls.crt, and its authority, up to the root, in ca.crt"
)


@dataclass(frozen=True, slots=True)
class Given:
    """A certificate that fits. ``chain`` is what servers show, leaf first, ``authority`` what clients verify by."""

    leaf: Pair
    chain: str
    authority: str


class Unfit(Exception):
    """A given Secret cannot be served. The text says what is wrong and what to do, without the Secret's name."""


def judged(data: Mapping[str, bytes], names: Sequence[str], now: datetime) -> Given:
    """The certificate in ``data`` (of a Secret of type ``kubernetes.io/tls``, with ``ca.crt``).

    Args:
        names: each must be covered; a wildcard covers one label.

    Raises:
        Unfit: it cannot be served to clients that verify it.
    """
    chain = _certificates(data, "tls.crt")
    authorities = _certificates(data, "ca.crt")
    leaf = Pair(chain[0], _text(data, "tls.key"))
    _check_key(leaf)
    _check_time(chain, now)
    valid = [a for a in authorities if times(a)[0] <= now < times(a)[1]]
    if refusal := _refusal("".join(chain), leaf.key, "".join(valid)):
        raise Unfit(refusal)
    if missing := [n for n in names if not covers(chain[0], n)]:
        raise Unfit(f"tls.crt ({subject(chain[0])}) is not for {', '.join(missing)}: add these names to it")
    return Given(leaf, "".join(chain), "".join(authorities))


def _text(data: Mapping[str, bytes], key: str) -> str:
    if not data.get(key):
        raise Unfit(f"the key {key} is missing or empty")
    try:
        return data[key].decode()
    except UnicodeDecodeError:
        raise Unfit(f"{key} is not PEM") from None


def _certificates(data: Mapping[str, bytes], key: str) -> tuple[str, ...]:
    try:
        return split(_text(data, key))
    except ValueError as error:
        raise Unfit(f"{key} holds no certificate in PEM: {error}") from None


def _check_key(leaf: Pair) -> None:
    try:
        if belongs(leaf.certificate, leaf.key):
            return
    except ValueError:
        raise Unfit("tls.key holds no private key in PEM") from None
    raise Unfit("tls.key is not the key of tls.crt, or a password protects it")


def _check_time(chain: Sequence[str], now: datetime) -> None:
    for certificate in chain:
        begins, ends = times(certificate)
        if now >= ends:
            raise Unfit(f"{subject(certificate)} in tls.crt expired at {ends:%Y-%m-%d %H:%M} UTC: renew it")
        if now < begins:
            raise Unfit(f"{subject(certificate)} in tls.crt is valid only from {begins:%Y-%m-%d %H:%M} UTC on")


@lru_cache(maxsize=256)
def _refusal(chain: str, key: str, authorities: str) -> str:
    """Why no client that trusts ``authorities`` gets through to a server with this certificate; empty if one does.

    Asked of OpenSSL, whose rules those of libpq and the servers are. It is not asked for the time or the names.
    """
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname = False
    client.verify_flags |= _NO_CHECK_TIME
    try:
        if authorities:
            client.load_verify_locations(cadata=authorities)
        with in_memory(chain.encode()) as shown, in_memory(key.encode()) as secret:
            server.load_cert_chain(shown, secret)
        _shake_hands(client, server)
    except ssl.SSLCertVerificationError as error:
        return f"clients refuse tls.crt by what is valid in ca.crt ({error.verify_message}): {_WHOLE}"
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"servers cannot show tls.crt ({reason}): give another one, with its key"
    return ""


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking, answering = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_MOST_FLIGHTS):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            if side is asking:
                return
