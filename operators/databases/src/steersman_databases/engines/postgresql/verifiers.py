"""SCRAM-SHA-256 verifiers: what PostgreSQL keeps in place of a password, made and compared here.

So a statement never holds the password, and no log of a server can. A verifier is
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
from functools import lru_cache

ITERATIONS = 4096
"""PostgreSQL's own default, and the least that RFC 7677 allows."""

SALT_BYTES = 16

# At most 99,999 iterations: somebody could set a verifier whose check keeps us busy for minutes.
_FORM = re.compile(r"SCRAM-SHA-256\$(\d{1,5}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")


def verifier(password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> str:
    """The verifier of a password, by a salt of its own unless one is given."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", prepared(password), salt, iterations)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    encoded = (base64.b64encode(part).decode() for part in (salt, stored_key, server_key))
    return "SCRAM-SHA-256${}:{}${}:{}".format(iterations, *encoded)


def opens(password: str, stored: str | None) -> bool:
    """Whether a password is the one that a stored verifier was made of. Other kinds of verifiers never open."""
    form = _FORM.fullmatch(stored or "")
    if form is None or stored is None:
        return False
    try:
        salt = base64.b64decode(form[2], validate=True)
    except binascii.Error:
        return False
    return hmac.compare_digest(_remembered(password, salt, int(form[1])), stored)


@lru_cache(maxsize=4096)
def _remembered(password: str, salt: bytes, iterations: int) -> str:
    """A survey compares the same passwords every ten seconds; 4,096 rounds take a millisecond."""
    return verifier(password, salt, iterations)


def prepared(password: str) -> bytes:
    """The password as PostgreSQL hashes it: by SASLprep (RFC 4013), or as it is where that refuses it."""
    try:
        return saslprep(password).encode()
    except ValueError:
        return password.encode()


def saslprep(text: str) -> str:
    """RFC 4013 for stored strings: other spaces become a space, some characters nothing, then NFKC.

    As PostgreSQL does it, which looks for what is prohibited before NFKC and takes U+200B for a space.
    Raises `ValueError` for characters that it prohibits, and for directions that it does not let mix.
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
