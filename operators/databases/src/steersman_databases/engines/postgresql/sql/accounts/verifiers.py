"""SCRAM-SHA-256 verifiers, which PostgreSQL stores instead of passwords.

They are computed here, so that no statement, and thus no log of a server, contains a password. A verifier is
`SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`. Sources: RFC 5802, section 3; RFC 7677; RFC 4013
(SASLprep); PostgreSQL documentation, 53.8 "pg_authid".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import stringprep
import unicodedata

from steersman_databases.engines.connection.input_limits import MAX_SCRAM_ITERATIONS
from steersman_databases.engines.digest_cache import cached_by_digest

ITERATIONS = 4096
"""PostgreSQL's default, and the minimum of RFC 7677."""

SALT_BYTES = 16

_FORM = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


def scram_verifier(password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> str:
    """Return the verifier of a password. `salt` defaults to a random value."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", prepare_password(password), salt, iterations)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    encoded = (base64.b64encode(part).decode() for part in (salt, stored_key, server_key))
    return "SCRAM-SHA-256${}:{}${}:{}".format(iterations, *encoded)


def matches(password: str, verifier: str | None) -> bool:
    """Return True if a stored verifier belongs to this password.

    Other kinds of verifiers never match.
    """
    form = _FORM.fullmatch(verifier or "")
    if form is None or verifier is None:
        return False
    if int(form[1]) > MAX_SCRAM_ITERATIONS:
        return False
    try:
        salt = base64.b64decode(form[2], validate=True)
    except binascii.Error:
        return False
    return hmac.compare_digest(_cached_verifier(password, salt, int(form[1])), verifier)


def is_expensive(verifier: str) -> bool:
    """Return True if its comparison takes longer than with the default iterations."""
    form = _FORM.fullmatch(verifier)
    return form is not None and ITERATIONS < int(form[1]) <= MAX_SCRAM_ITERATIONS


@cached_by_digest(maxsize=4096)
def _cached_verifier(password: str, salt: bytes, iterations: int) -> str:
    """Cache verifiers: each inspection compares the same passwords every ten seconds.

    4,096 iterations take a millisecond.
    """
    return scram_verifier(password, salt, iterations)


def prepare_password(password: str) -> bytes:
    """Return the password as PostgreSQL hashes it.

    This is its SASLprep form (RFC 4013), or the unchanged password if SASLprep refuses it.
    """
    if password.isascii() and password.isprintable():
        # SASLprep changes no printable character of ASCII.
        return password.encode()
    try:
        return saslprep(password).encode()
    except ValueError:
        return password.encode()


def saslprep(text: str) -> str:
    """Normalise a stored string by RFC 4013.

    Other spaces become a space, some characters are removed, then NFKC follows. As in PostgreSQL, the check for
    prohibited characters comes before NFKC, and U+200B counts as a space.

    Raises:
        ValueError: prohibited characters, or mixed directions.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(c) else c
        for c in text
        if stringprep.in_table_c12(c) or not stringprep.in_table_b1(c)
    )
    if not mapped or any(_prohibited(c) for c in mapped):
        raise ValueError("prohibited by RFC 4013")
    if any(stringprep.in_table_d1(c) for c in mapped) and (
        any(stringprep.in_table_d2(c) for c in mapped)
        or not (stringprep.in_table_d1(mapped[0]) and stringprep.in_table_d1(mapped[-1]))
    ):
        raise ValueError("mixed directions")
    return unicodedata.normalize("NFKC", mapped)


def _prohibited(character: str) -> bool:
    return any(
        table(character)
        for table in (
            stringprep.in_table_a1,
            stringprep.in_table_c12,
            stringprep.in_table_c21_c22,
            stringprep.in_table_c3,
            stringprep.in_table_c4,
            stringprep.in_table_c5,
            stringprep.in_table_c6,
            stringprep.in_table_c7,
            stringprep.in_table_c8,
            stringprep.in_table_c9,
        )
    )
