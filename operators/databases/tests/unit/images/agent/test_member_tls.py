"""Whom members trust, who ask each other what the group has."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from framework_support.certificates import CertificateAuthority
from steersman_agent.group.group_status import member_ssl_context


def test_member_tls_accepts_what_servers_accept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13's default context refuses what servers are given by many an authority: nobody would join again."""

    def newest(*_: object, **__: object) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", newest)
    authority = CertificateAuthority()
    certificate, key = authority.issue("member")
    for name, content in (("ca.crt", authority.certificate), ("tls.crt", certificate), ("tls.key", key)):
        (tmp_path / name).write_bytes(content)
    context = member_ssl_context(tmp_path / "ca.crt", tmp_path / "tls.crt", tmp_path / "tls.key")
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert len(context.get_ca_certs()) == 1
