"""Servers are reached by name while DNS answers nothing about the names of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from database_support.servers.matrix import postgresqls
from database_support.servers.silent_dns import HUNG, LOOPS, run_with_silent_dns


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("engine", [max(postgresqls()), "mariadb-own"])
def test_server_is_reached_while_other_lookups_hang(engine: str, loop: str, tmp_path: Path) -> None:
    told = run_with_silent_dns(tmp_path, engine, loop)
    assert told["known"] == "connected"
    # It is the certificate of localhost that the server shows.
    assert "elsewhere.example.org" in told["elsewhere"]
    assert "certificate" in told["elsewhere"]
    assert len(told["hung"]) == HUNG
    assert all(words.endswith("DNS did not respond in time") for words in told["hung"]), told["hung"]
