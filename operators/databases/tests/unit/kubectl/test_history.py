"""``kubectl steersman history``: its tables, its lines of blocks, and its failures."""

from __future__ import annotations

import subprocess

import msgspec
import pytest

from database_support.unit.plugin import PlayedExec, call, executed, pod, reached, server
from steersman_databases.kubectl.insight.history_view import sparkline
from steersman_testing import InMemoryApiServer

__all__ = ["executed", "reached", "server"]

RECORDED = """
{"resolutionSeconds": 10, "end": "2030-01-01T10:00:00Z", "series": [
  {"name": "sessions_active", "unit": "count", "values": [0, 1, null, 8, 3]},
  {"name": "transactions", "unit": "per_second", "values": [null, 411.8, 0.0033333, 1, null]},
  {"name": "wal", "unit": "bytes_per_second", "values": [0, 0, 0, 0, 2097152]},
  {"name": "cache_hit_ratio", "unit": "ratio", "values": [1, 1, 1, 1, 0.5]},
  {"name": "longest_transaction", "unit": "seconds", "values": [4, 4, 4, 4, 4]},
  {"name": "cpu", "unit": "cores", "values": [0.25, 0.25, 0.25, 0.25, 0.25]},
  {"name": "lag_bytes", "unit": "bytes", "values": [null, null, null, null, null]}]}
"""
TEXT = """\
shop-1: 50 s until 2030-01-01 10:00:00 UTC

SERIES                MIN       MEAN        MAX       NOW       OLDEST TO NEWEST
sessions active       0         3           8         3         ▁▂ █▄
transactions/s        0.00333   138         412                  █▁▁
wal/s                 0 B       409.6 KiB   2.0 MiB   2.0 MiB   ▁▁▁▁█
cache hit ratio       50.0 %    90.0 %      100.0 %   50.0 %    ████▅
longest transaction   4 s       4 s         4 s       4 s       █████
cpu cores             0.25      0.25        0.25      0.25      █████
"""
EMPTY = '{"resolutionSeconds": 300, "end": "2030-01-01T10:00:00Z", "series": []}'
USAGE = subprocess.CompletedProcess((), 2, "", "usage: steersman-instance agent|archive [ARGUMENTS]\n")


def test_history_shows_series_with_values(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-1-0", "primary"))
    executed.responses += [RECORDED]
    assert call("history", "shop").output == TEXT
    [command] = executed.commands
    assert "--container=agent" in command
    assert command[command.index("--") + 1 :] == ["steersman-instance", "history", "10s"]


def test_history_shows_all_instances_or_one(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    executed.by_pod.update({"shop-0-0": [EMPTY, EMPTY], "shop-1-0": [RECORDED]})
    assert call("history", "shop").output == f"shop-0: no history yet\n\n{TEXT}"
    assert call("history", "shop", "--instance", "shop-0", "--since", "24h").output == "shop-0: no history yet\n"
    assert executed.commands[-1][-1] == "5m"
    refused = call("history", "shop", "--instance", "shop-9")
    assert refused.exit_code == 2 and "has no instance shop-9" in refused.stderr


def test_history_json_has_all_points(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-1-0", "primary"))
    executed.responses += [RECORDED]
    [found] = msgspec.json.decode(call("history", "shop", "-o", "json").stdout)
    assert found == {"instance": "shop-1", "history": msgspec.json.decode(RECORDED)}


def test_history_failed_instance_is_a_note(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-0-0", "replica"), pod("shop-1-0", "primary"))
    executed.by_pod.update({"shop-0-0": [USAGE, USAGE], "shop-1-0": [RECORDED, "no JSON"]})
    shown = call("history", "shop")
    assert shown.exit_code == 0 and shown.stdout == TEXT
    assert shown.stderr == "shop-0: the image of the instance does not record a history. Update the image\n"
    failed = call("history", "shop")
    assert failed.exit_code == 1 and "no history of cluster prod/shop is available" in failed.stderr


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([None, 0, 0], " ▁▁"),
        ([0, 7, 3.5, None], "▁█▅ "),
        ([0, 14, 14, 14], "▅█"),
        ([None, 4, None, None], "█ "),
        ([-1, 1], "▁█"),
    ],
)
def test_sparkline_scales_from_zero_to_largest(values: list[float | None], line: str) -> None:
    assert sparkline(values, width=len(line) or 9) == line
