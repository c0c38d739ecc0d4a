"""Certificates of test environments are valid for every supported Python."""

from __future__ import annotations

from pathlib import Path

from framework_support.certificates import strict_handshake
from steersman_testing.envtest.certificates import CertificateAuthority


def test_the_strictest_clients_trust_the_server(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    pair = authority.issue_server(["localhost"], ["127.0.0.1"])
    strict_handshake(
        authority.certificate.decode(), pair.certificate.decode(), pair.key.decode(), "127.0.0.1", tmp_path
    )
