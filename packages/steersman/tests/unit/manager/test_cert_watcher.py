"""Certificate files that are renewed externally."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from framework_support.certificates import strict_handshake_with
from steersman.manager.serving.cert_watcher import CertWatcher
from steersman.webhook.certificates import KeyPair, issue

NAME = "shop-webhook.shop-system.svc"


@pytest.fixture
def pairs() -> tuple[KeyPair, KeyPair]:
    now = datetime.now(UTC)
    return issue([NAME], now, timedelta(days=1)), issue([NAME], now, timedelta(days=1))


def replace_file(file: Path, text: str) -> None:
    """Replace the file atomically, like the kubelet."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@pytest.mark.parametrize("broken", ["another's", "no PEM"])
def test_certificate_reload_waits_for_matching_pair(
    tmp_path: Path, pairs: tuple[KeyPair, KeyPair], broken: str
) -> None:
    former, new = pairs
    replace_file(tmp_path / "tls.crt", former.certificate)
    replace_file(tmp_path / "tls.key", former.key)
    served = CertWatcher(str(tmp_path))
    replace_file(tmp_path / "tls.crt", new.certificate)
    if broken == "no PEM":
        replace_file(tmp_path / "tls.key", broken)
    served.reload_if_changed()
    strict_handshake_with(served.ssl_context, former.ca_certificate, NAME)

    replace_file(tmp_path / "tls.key", new.key)
    served.reload_if_changed()
    strict_handshake_with(served.ssl_context, new.ca_certificate, NAME)
    with pytest.raises(ssl.SSLError):
        strict_handshake_with(served.ssl_context, former.ca_certificate, NAME)
