"""Decompression of WAL segments, within a limit."""

from __future__ import annotations

import pytest

from steersman_instance.recovery.zstd import InvalidZstd, decompress

CONTENT = b"steersman" * 1000
FRAME = bytes.fromhex("28b52ffd6028228d0000487374656572736d616e01001c837c3902")


def test_frame_is_decompressed() -> None:
    assert decompress(FRAME, len(CONTENT)) == CONTENT
    assert decompress(FRAME, 1 << 20) == CONTENT


@pytest.mark.parametrize("data", [FRAME[:-1], FRAME[:5], b"", b"x" * 40, FRAME.replace(b"steer", b"\xff" * 9)])
def test_damaged_frame_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidZstd):
        decompress(data, 1 << 20)


def test_frame_above_the_limit_is_refused() -> None:
    with pytest.raises(InvalidZstd, match="more than"):
        decompress(FRAME, len(CONTENT) - 1)
