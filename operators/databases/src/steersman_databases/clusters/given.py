"""What a certificate that somebody gives a cluster must be: the checks, and the words for each that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from steersman_databases.clusters.x509 import Pair, belongs, covers, signed_by, split, subject, times

# Chains are short: a root, and at most some intermediates.
_LONGEST_CHAIN = 8


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
    if not _leads_to(chain, authorities, now):
        raise Unfit("tls.crt was not signed by a valid certificate in ca.crt: give the authority that signed it")
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


def _leads_to(chain: Sequence[str], authorities: Sequence[str], now: datetime) -> bool:
    """Whether the first of ``chain`` comes, over others of it, from a valid one of ``authorities``."""
    anchors = [a for a in authorities if times(a)[0] <= now < times(a)[1]]
    present = chain[0]
    for _ in range(_LONGEST_CHAIN):
        if any(present == a or signed_by(present, a) for a in anchors):
            return True
        issuer = next((c for c in chain if c != present and signed_by(present, c)), None)
        if issuer is None:
            return False
        present = issuer
    return False
