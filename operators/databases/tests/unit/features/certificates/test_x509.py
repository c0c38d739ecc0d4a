"""Keys and bundles of tenants, which may be made to occupy the operator."""

from __future__ import annotations

import base64
from functools import lru_cache

import pytest

from framework_support.certificates import CertificateAuthority
from steersman_databases.features.certificates.x509 import UnsupportedKey, key_matches, split

EXPONENT = 65537


@lru_cache
def certificate() -> str:
    return CertificateAuthority().issue("shop", names=["shop"])[0].decode()


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    encoded = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag]) + (encoded if size < 128 else bytes([0x80 | len(encoded)]) + encoded) + content


def rsa_key(p: int, q: int, **changed: int) -> str:
    """A key in PEM (RFC 8017, A.1.2). OpenSSL tests for minutes whether large Mersenne primes are prime."""
    private = pow(EXPONENT, -1, (p - 1) * (q - 1))
    parts = {"version": 0, "n": p * q, "e": EXPONENT, "d": private, "p": p, "q": q}
    parts |= {"dmp1": private % (p - 1), "dmq1": private % (q - 1), "iqmp": pow(q, -1, p), **changed}
    integers = (der(2, part.to_bytes(part.bit_length() // 8 + 1, "big")) for part in parts.values())
    text = base64.encodebytes(der(0x30, b"".join(integers))).decode()
    return f"-----BEGIN RSA PRIVATE KEY-----\n{text}-----END RSA PRIVATE KEY-----\n"


def test_rsa_key_of_another_certificate_does_not_match() -> None:
    assert not key_matches(certificate(), rsa_key(2**2203 - 1, 2**1279 - 1))


def test_rsa_key_over_4096_bits_is_rejected() -> None:
    with pytest.raises(UnsupportedKey, match=r"8676 bits\. Use an RSA key of at most 4096 bits"):
        key_matches(certificate(), rsa_key(2**4423 - 1, 2**4253 - 1))


@pytest.mark.parametrize("part", ["d", "dmp1", "iqmp"])
def test_rsa_key_with_an_oversized_part_is_rejected(part: str) -> None:
    with pytest.raises(UnsupportedKey, match="longer than its modulus"):
        key_matches(certificate(), rsa_key(2**1279 - 1, 2**607 - 1, **{part: 2**9000 + 1}))


def test_oversized_text_is_rejected() -> None:
    with pytest.raises(UnsupportedKey, match="longer than 16 KiB"):
        key_matches(certificate(), "#" * 17_000)
    with pytest.raises(ValueError, match="longer than 512 KiB"):
        split(certificate() + "#" * (512 << 10))
