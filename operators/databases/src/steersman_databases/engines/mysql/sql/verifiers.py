"""Password verifiers of MySQL and MariaDB.

They are computed here, so that no statement contains a password. `caching_sha2_password` stores `$A$005$`, 20
characters of salt and a SHA-256 crypt of 5,000 rounds. MariaDB's `mysql_native_password` stores a SHA-1 of a
SHA-1. Sources: MySQL Reference Manual, 8.4.1.1; U. Drepper, "Unix crypt using SHA-256 and SHA-512"; MariaDB
Knowledge Base, "Authentication Plugin - mysql_native_password". A verifier here is the plugin's name, a colon,
and the stored text of the plugin.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string

from steersman_databases.engines.connection.input_limits import MAX_SHA2_ROUNDS

from ...digest_cache import cached_by_digest

SHA2 = "caching_sha2_password"
NATIVE = "mysql_native_password"

ROUNDS = 5000
"""MySQL's default."""

SALT_CHARACTERS = 20
_ALPHABET = "./" + string.digits + string.ascii_uppercase + string.ascii_lowercase
_FORM = re.compile(r"\$A\$(0[0-9A-F]{2})\$(.{20})(.{43})", re.DOTALL)


def sha2_verifier(password: str, salt: bytes | None = None, rounds: int = ROUNDS) -> str:
    """Return a verifier of `caching_sha2_password`.

    `salt` defaults to a random value.
    """
    if salt is None:
        salt = "".join(secrets.choice(_ALPHABET) for _ in range(SALT_CHARACTERS)).encode()
    digest = _sha256_crypt(password.encode(), salt, rounds)
    return f"{SHA2}:$A${rounds // 1000:03X}${salt.decode('latin-1')}{digest}"


def native_verifier(password: str) -> str:
    """Return a verifier of `mysql_native_password`."""
    inner = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
    return f"{NATIVE}:*{hashlib.sha1(inner, usedforsecurity=False).hexdigest().upper()}"


def matches(password: str, verifier: str | None) -> bool:
    """Return True if a verifier belongs to this password.

    Verifiers of other plugins never match.
    """
    plugin, _, hash_text = (verifier or "").partition(":")
    if plugin == NATIVE:
        return hmac.compare_digest(native_verifier(password), f"{NATIVE}:{hash_text}")
    form = _FORM.fullmatch(hash_text) if plugin == SHA2 else None
    if form is None or (rounds := int(form[1], 16) * 1000) > MAX_SHA2_ROUNDS:
        return False
    digest = _cached_digest(password, form[2].encode("latin-1"), rounds)
    return hmac.compare_digest(digest.encode("latin-1"), f"{SHA2}:{hash_text}".encode("latin-1", "replace"))


def is_expensive(verifier: str) -> bool:
    """Return True if its comparison takes longer than with the default rounds."""
    plugin, _, hash_text = verifier.partition(":")
    form = _FORM.fullmatch(hash_text) if plugin == SHA2 else None
    return form is not None and ROUNDS < int(form[1], 16) * 1000 <= MAX_SHA2_ROUNDS


@cached_by_digest(maxsize=4096)
def _cached_digest(password: str, salt: bytes, rounds: int) -> str:
    """Cache digests: each inspection compares the same passwords every ten seconds.

    One digest takes milliseconds.
    """
    return sha2_verifier(password, salt, rounds)


def _sha256_crypt(password: bytes, salt: bytes, rounds: int) -> str:
    size = len(password)
    inner = hashlib.sha256(password + salt + password).digest()
    start = hashlib.sha256(password + salt + _repeat(inner, size))
    length = size
    while length:
        start.update(inner if length & 1 else password)
        length >>= 1
    digest = start.digest()
    p = _repeat(hashlib.sha256(password * size).digest(), size)
    s = _repeat(hashlib.sha256(salt * (16 + digest[0])).digest(), len(salt))
    for number in range(rounds):
        text = p if number & 1 else digest
        text += s if number % 3 else b""
        text += p if number % 7 else b""
        text += digest if number & 1 else p
        digest = hashlib.sha256(text).digest()
    return _encoded(digest)


def _repeat(block: bytes, size: int) -> bytes:
    return (block * (size // len(block) + 1))[:size]


def _encoded(digest: bytes) -> str:
    """Encode the bytes in the scheme's order, six bits per character."""
    a, b, c = 0, 10, 20
    characters: list[str] = []
    for _ in range(10):
        characters += _base64_group(digest[a], digest[b], digest[c], 4)
        a, b, c = c + 1, a + 1, b + 1
    return "".join([*characters, *_base64_group(0, digest[31], digest[30], 3)])


def _base64_group(high: int, middle: int, low: int, count: int) -> list[str]:
    value = high << 16 | middle << 8 | low
    return [_ALPHABET[value >> 6 * position & 63] for position in range(count)]
