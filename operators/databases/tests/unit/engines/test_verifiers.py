"""Verifiers are those that the servers themselves make."""

from __future__ import annotations

import base64

import pytest

from steersman_databases.engines.mysql.sql import verifiers as mysql
from steersman_databases.engines.postgresql.sql.accounts import verifiers as postgresql


def test_scram_matches_rfc_7677_example() -> None:
    """RFC 7677, section 3: its nonces and proofs come out of this StoredKey and ServerKey."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    assert postgresql.scram_verifier("pencil", salt, 4096) == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
        ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )


def test_scram_uses_stored_salt_and_iterations() -> None:
    stored = postgresql.scram_verifier("pencil", b"another salt", 5000)
    assert postgresql.matches("pencil", stored)
    assert not postgresql.matches("pencils", stored)


@pytest.mark.parametrize(
    "stored", [None, "", "md5" + "0" * 32, "SCRAM-SHA-256$4096:?$a:b", "SCRAM-SHA-256$9999999:YQ==$YQ==:YQ=="]
)
def test_invalid_scram_verifier_never_matches(stored: str | None) -> None:
    assert not postgresql.matches("pencil", stored)


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0007", None),
        ("\u0627\u0031", None),
    ],
)
def test_saslprep_matches_rfc_4013_examples(text: str, prepared: str | None) -> None:
    if prepared is None:
        with pytest.raises(ValueError, match=r"prohibited|directions"):
            postgresql.saslprep(text)
        assert postgresql.prepare_password(text) == text.encode()
    else:
        assert postgresql.saslprep(text) == prepared


def test_caching_sha2_matches_real_server() -> None:
    """Made by MySQL 9.7 for the password `pw`, with 10,000 rounds."""
    kept = bytes.fromhex(
        "24412430304124700A1C782E2F4E0E2D616C20210403642C5A257D"
        "3246356253724E655A2F576C6C68697166326D73347176707036503332555A345845533461305536696A30"
    ).decode("latin-1")
    assert mysql.matches("pw", f"caching_sha2_password:{kept}")
    assert not mysql.matches("pW", f"caching_sha2_password:{kept}")


def test_native_password_matches_mariadb() -> None:
    """MariaDB's PASSWORD('mariadb'), as its documentation shows it."""
    assert mysql.native_verifier("mariadb") == "mysql_native_password:*54958E764CE10E50764C2EECBB71D01F08549980"
    assert mysql.matches("mariadb", mysql.native_verifier("mariadb"))
    assert not mysql.matches("mariadb", "auth_socket:")
