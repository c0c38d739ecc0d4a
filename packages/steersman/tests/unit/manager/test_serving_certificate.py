"""Certificates that something else renews in files."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from framework_support.strict_tls import shake_hands_with
from steersman.manager.serving_certificate import ServingCertificate
from steersman.webhook.certificates import Pair, issue

NAME = "shop-webhook.shop-system.svc"


@pytest.fixture
def pairs() -> tuple[Pair, Pair]:
    now = datetime.now(UTC)
    return issue([NAME], now, timedelta(days=1)), issue([NAME], now, timedelta(days=1))


def put(file: Path, text: str) -> None:
    """In one go, as the kubelet does."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@pytest.mark.parametrize("broken", ["another's", "no PEM"])
def test_the_former_one_is_served_until_the_new_one_is_whole(
    tmp_path: Path, pairs: tuple[Pair, Pair], broken: str
) -> None:
    former, new = pairs
    put(tmp_path / "tls.crt", former.certificate)
    put(tmp_path / "tls.key", former.key)
    served = ServingCertificate(str(tmp_path))
    put(tmp_path / "tls.crt", new.certificate)
    if broken == "no PEM":
        put(tmp_path / "tls.key", broken)
    served.refresh()
    shake_hands_with(served.context, former.authority, NAME)

    put(tmp_path / "tls.key", new.key)
    served.refresh()
    shake_hands_with(served.context, new.authority, NAME)
    with pytest.raises(ssl.SSLError):
        shake_hands_with(served.context, former.authority, NAME)
