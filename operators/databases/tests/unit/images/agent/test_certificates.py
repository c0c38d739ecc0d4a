"""What a server is given to know others by, where a file is not what it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from framework_support.certificates import CertificateAuthority
from steersman_agent.server import certificates
from steersman_agent.server.certificates import CertificateReload

BROKEN = b"-----BEGIN CERTIFICATE-----\nMIIBx\n-----END CERTIFICATE-----\n"


def mounted(directory: Path, authority: CertificateAuthority) -> CertificateReload:
    for name in ("tls", "peer"):
        (directory / name).mkdir()
        certificate, key = authority.issue(name)
        for file, content in (("ca.crt", authority.certificate), ("tls.crt", certificate), ("tls.key", key)):
            (directory / name / file).write_bytes(content)
    return CertificateReload(directory / "tls", directory / "peer", directory / "trusted.crt")


def test_unreadable_certificate_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_CHECK_INTERVAL_SECONDS", 0.0)
    found = mounted(tmp_path, authority := CertificateAuthority())
    found.load()
    assert not found.have_changed()
    known = found.trusted.read_text()
    (tmp_path / "tls/ca.crt").write_bytes(authority.certificate + BROKEN)
    for _ in range(2):
        assert found.have_changed()
        with pytest.raises(ValueError, match=r"padding|base64"):
            found.load()
    assert found.trusted.read_text() == known
    (tmp_path / "tls/ca.crt").write_bytes(CertificateAuthority().certificate)
    assert found.have_changed()
    found.load()
    assert not found.have_changed() and found.trusted.read_text() != known
