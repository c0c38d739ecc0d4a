"""The slow query log in the container's logs."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from steersman_agent.server.slow_log import LIMIT_BYTES, SlowLogForwarder


def test_forwarder_copies_each_line_once(tmp_path: Path) -> None:
    file, output = tmp_path / "slow.log", BytesIO()
    forwarder = SlowLogForwarder(file, output)
    forwarder.step()
    with file.open("ab") as server:
        for line in (b"one\n", b"two\n"):
            server.write(line)
            server.flush()
            forwarder.step()
            forwarder.step()
    assert output.getvalue() == b"one\ntwo\n"


def test_forwarder_empties_large_file(tmp_path: Path) -> None:
    file, output = tmp_path / "slow.log", BytesIO()
    forwarder = SlowLogForwarder(file, output)
    with file.open("ab") as server:
        server.write(b"x" * LIMIT_BYTES)
        server.flush()
        forwarder.step()
        assert file.stat().st_size == 0
        server.write(b"more\n")
        server.flush()
        forwarder.step()
    assert output.getvalue() == b"x" * LIMIT_BYTES + b"more\n"


def test_forwarder_follows_new_file(tmp_path: Path) -> None:
    file, output = tmp_path / "slow.log", BytesIO()
    forwarder = SlowLogForwarder(file, output)
    file.write_bytes(b"first\n")
    forwarder.step()
    file.unlink()
    forwarder.step()
    file.write_bytes(b"second\n")
    forwarder.step()
    assert output.getvalue() == b"first\nsecond\n"
