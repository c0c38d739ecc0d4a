"""No two promotions begin a timeline with the same number: what is reserved, and what is left on a disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from database_support.e2e.patroni_cluster import view
from database_support.unit.image_script import IMAGES, script
from steersman_databases.engines.postgresql.ha import patroni
from steersman_pod import api_client

timeline = script("postgresql", "timeline")
STORE = "/store"


@dataclass
class Store:
    """The API server: a ConfigMap, each write with the precondition that it names."""

    data: dict[str, str] = field(default_factory=dict[str, str])
    version: int = 1
    reads: int = 200
    writes: int = 200

    def answer(self, request: Any) -> Any:
        assert request.path == STORE
        if request.body is None:
            shown = {"metadata": {"resourceVersion": str(self.version)}, **({"data": self.data} if self.data else {})}
            return timeline.ApiResponse(self.reads, shown)
        if self.writes != 200 or request.body["metadata"]["resourceVersion"] != str(self.version):
            return timeline.ApiResponse(409 if self.writes == 200 else self.writes, {})
        self.data = {**self.data, **request.body["data"]}
        self.version += 1
        return timeline.ApiResponse(200, {})

    def reserve(self, known: int, system: str = "7711") -> int:
        return timeline.run_requests(timeline.reserve(STORE, system, known), self.answer)


def test_reserved_timeline_exceeds_known_and_reserved() -> None:
    store = Store()
    assert store.reserve(1) == 2
    assert store.reserve(1) == 3, "somebody who has not heard of 2"
    assert store.reserve(7) == 8, "somebody who has heard of more than stands here"
    assert store.reserve(2) == 9
    assert store.reserve(1, system="8822") == 2, "data of an upgrade begin with timeline 1"
    assert store.data == {"7711": "9", "8822": "2"}


def test_concurrent_reservations_differ() -> None:
    for order in product((0, 1), repeat=8):
        store, numbers = Store(), dict[int, int]()
        running: dict[int, Generator[Any, Any, int]] = {n: timeline.reserve(STORE, "7711", 4) for n in (0, 1)}
        asked = {n: next(one) for n, one in running.items()}
        for n in (*order, *(0, 1) * 8):
            if n not in numbers:
                try:
                    asked[n] = running[n].send(store.answer(asked[n]))
                except StopIteration as end:
                    numbers[n] = end.value
        assert sorted(numbers.values()) == [5, 6]


@pytest.mark.parametrize(("reads", "writes"), [(404, 200), (403, 200), (200, 403), (200, 404)])
def test_unavailable_reservation_promotes_as_before(reads: int, writes: int) -> None:
    """An earlier operator makes no such ConfigMap, and gives no right to it."""
    assert Store(reads=reads, writes=writes).reserve(4) == 5


@pytest.mark.parametrize("said", ["", "many", "-3", "4000000000", "9" * 5000])
def test_implausible_reservation_is_ignored(said: str) -> None:
    store = Store(data={"7711": said})
    assert store.reserve(4) == 5
    assert store.data == {"7711": said}, "no lower one than stands there is ever written"


def test_skipped_timelines_are_fsynced_and_existing_kept(tmp_path: Path) -> None:
    """Below its own timeline too, which may be a copy's, but for its own."""
    (tmp_path / "0000000A.history").write_text("9\t0/5500FB0\tno recovery target specified\n")
    timeline.skip_timeline(tmp_path, 8, 13)
    left = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert sorted(left) == [f"{n:08X}.history" for n in (2, 3, 4, 5, 6, 7, 9, 10, 11, 12)]
    assert left.pop("0000000A.history").startswith("9\t")
    assert {content[0] for content in left.values()} == {"#"}
    timeline.skip_timeline(tmp_path, 8, 13)
    assert len(list(tmp_path.iterdir())) == 10


@pytest.mark.parametrize(("heard_of", "said", "number"), [((), "4", 5), ((2, 3, 9), "4", 10), ((2,), "", 3)])
def test_reserve_next_prepares_promotion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard_of: tuple[int, ...], said: str, number: int
) -> None:
    log = prepare(tmp_path, monkeypatch)
    for one in heard_of:
        (log / f"{one:08X}.history").write_text("1\t0/3000000\twhy\n")
    server = ApiServer(Store({"7711": said} if said else {}))
    monkeypatch.setattr(timeline, "ApiClient", server.called)
    assert timeline.reserve_next("pg")
    assert server.store.data == {"7711": str(number)}
    assert sorted(file.name for file in log.iterdir()) == [f"{n:08X}.history" for n in range(2, number)]


@pytest.mark.parametrize("store", [*(Store(reads=status) for status in (401, 422, 503)), Store(writes=503)])
def test_failed_reservation_releases_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """Before it ends by itself: another may take it then."""
    log = prepare(tmp_path, monkeypatch)
    server, now = ApiServer(store), [0.0]

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(timeline, "ApiClient", server.called)
    monkeypatch.setattr(api_client.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(api_client.time, "sleep", pass_by)
    assert not timeline.reserve_next("pg")
    assert server.asked > 3 and now[0] < 10
    assert not list(log.iterdir())


@pytest.mark.parametrize("wrong", ["control file", "history", "environment", "answer"])
def test_reservation_error_is_logged_without_promotion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    log = prepare(tmp_path, monkeypatch)
    server = ApiServer(Store({"7711": "3"}))
    monkeypatch.setattr(timeline, "ApiClient", server.called)
    (log / "backup.history").touch()
    if wrong == "control file":
        (tmp_path / "pg_controldata").write_text("#!/bin/sh\nexit 1\n")
    elif wrong == "history":
        (log / "7FFFFFFF.history").touch()
    elif wrong == "environment":
        monkeypatch.delenv("POD_NAMESPACE")
    else:
        monkeypatch.setattr(server, "send", lambda request: timeline.ApiResponse(200, []))  # pyright: ignore
    assert not timeline.reserve_next("pg")
    assert "no promotion" in capsys.readouterr().err


class ApiServer:
    """Where `reserve_next` finds the store."""

    manager = "steersman-timeline"

    def __init__(self, store: Store) -> None:
        self.store, self.asked = store, 0

    def called(self, manager: str) -> ApiServer:
        assert manager == self.manager
        return self

    def send(self, request: Any) -> Any:
        assert request.path == "/api/v1/namespaces/shop/configmaps/pg-timelines"
        self.asked += 1
        return self.store.answer(timeline.ApiRequest(STORE, request.body))


def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data at timeline 1, and what reads them; the directory of their log."""
    log = tmp_path / "data/pg_wal"
    log.mkdir(parents=True)
    told = """Database system identifier:           7711
Latest checkpoint's TimeLineID:       1
Latest checkpoint's PrevTimeLineID:   1
"""
    program = tmp_path / "pg_controldata"
    program.write_text(f'#!/bin/sh\n[ "$*" = {tmp_path}/data ] && cat <<END\n{told}END\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("POD_NAMESPACE", "shop")
    monkeypatch.setattr(timeline, "DATA", tmp_path / "data")
    return log


def run(tmp_path: Path, *arguments: str) -> str:
    """What steersman-postgres does with these; a line of shell plays the server."""
    server = tmp_path / "postgres"
    server.write_text('#!/bin/sh\necho "$@"\n')
    server.chmod(0o755)
    command = ["sh", str(IMAGES / "postgresql/postgres.sh"), *arguments]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=20).stdout


def test_server_starts_without_unused_timelines(tmp_path: Path) -> None:
    log = tmp_path / "data/pg_wal"
    log.mkdir(parents=True)
    for number, content in {2: "1\t0/3000000\twhy\n", 3: timeline.RESERVED, 5: "2\t0/4000000\twhy\n"}.items():
        (log / f"{number:08X}.history").write_text(content)
    for number in (6, 7):
        (log / f"{number:08X}.history").write_text(timeline.RESERVED)
    # Cut while its words were written, and before.
    (log / "0000000F.history").write_text(timeline.RESERVED[:5])
    (log / "0000000E.history").write_text(timeline.RESERVED * 2)
    (log / "00000010.history").touch()
    (log / "000000050000000000000004").touch()
    told = ("-D", str(tmp_path / "data"), "--config-file=/x", "--listen_addresses=*", "--port=5432")
    assert run(tmp_path, *told) == f"{' '.join(told)}\n"
    left = sorted(file.name for file in log.iterdir())
    assert left == ["00000002.history", "00000003.history", "00000005.history", "000000050000000000000004"]
    assert run(tmp_path, *told) == f"{' '.join(told)}\n"


def test_help_option_removes_nothing(tmp_path: Path) -> None:
    log = tmp_path / "data/pg_wal"
    log.mkdir(parents=True)
    (log / "00000002.history").write_text(timeline.RESERVED)
    assert run(tmp_path, "--version") == "--version\n"
    assert run(tmp_path, "--single", "-D", str(tmp_path / "data")).startswith("--single")
    assert run(tmp_path, "-D", str(tmp_path / "data"), "-C", "port", "--config-file=/x").startswith("-D")
    assert (log / "00000002.history").exists()
    assert run(tmp_path, "-D", str(tmp_path / "elsewhere"), "--config-file=/x").startswith("-D"), "no data yet"


def test_unreadable_history_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "data/pg_wal"
    (log / "00000003.history").mkdir(parents=True)
    (log / "00000002.history").write_text(timeline.RESERVED)
    run(tmp_path, "-D", str(tmp_path / "data"), "--config-file=/x")
    assert len(list(log.iterdir())) == 2
    (log / "00000003.history").rmdir()
    (log / "00000003.history").write_text(f"{timeline.RESERVED}\n2\t0/4000000\twhy\n")
    run(tmp_path, "-D", str(tmp_path / "data"), "--config-file=/x")
    assert len(list(log.iterdir())) == 2, "a timeline after one of which only the number is known"


def test_late_reservation_precedes_lock_expiry() -> None:
    lasts = patroni.dynamic_configuration(view("pg", "shop", "image"))["ttl"]
    assert lasts > timeline.TIMEOUT_SECONDS + 2 * api_client.RESPONSE_TIMEOUT_SECONDS
