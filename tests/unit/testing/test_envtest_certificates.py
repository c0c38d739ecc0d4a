"""The certificates of test environments, as every supported Python judges them."""

from __future__ import annotations

from pathlib import Path

from steersman.testing.envtest.certificates import Authority
from strict_tls import shake_hands


def test_the_strictest_clients_trust_the_server(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.server(["localhost"], ["127.0.0.1"])
    shake_hands(authority.certificate.decode(), pair.certificate.decode(), pair.key.decode(), "127.0.0.1", tmp_path)
