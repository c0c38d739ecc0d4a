"""Webhook certificates, verified with the rules of all supported Python versions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from framework_support.certificates import strict_handshake
from steersman.webhook.certificates import issue


def test_issued_certificate_passes_strict_verification(tmp_path: Path) -> None:
    name = "shop-webhook.shop-system.svc"
    pair = issue([name], datetime.now(UTC), timedelta(days=1))
    strict_handshake(pair.ca_certificate, pair.certificate, pair.key, name, tmp_path)
