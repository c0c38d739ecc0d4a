"""``kubectl steersman restore``."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from database_support.unit.backup_objects import backup_settings
from database_support.unit.plugin import KEY, call, reached, server
from steersman.client import Client, MergePatch
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.api import PostgreSQLCluster, Restore
from steersman_testing import InMemoryApiServer

__all__ = ["reached", "server"]
TO = ("--to", "2026-03-01T12:30:00Z", "--name", "r", "-n", "prod")
PLAN = {
    "id": "3f9a0c1d2e4b",
    "backupId": "20260228-000000F",
    "timeline": 3,
    "newestTimeline": 3,
    "restoresTo": "2026-03-01T12:29:58Z",
    "sizeBytes": 64 << 20,
}


@pytest.fixture
def archiving(server: InMemoryApiServer) -> InMemoryApiServer:
    body = {"spec": {"backup": to_builtins(backup_settings())}}
    asyncio.run(Client(server).patch(PostgreSQLCluster, KEY, MergePatch(body)))
    return server


@contextmanager
def controller(server: InMemoryApiServer) -> Generator[None]:
    """Plan the restore, and complete it once it is confirmed, as the operator does."""
    ended = threading.Event()

    async def play() -> None:
        client = Client(server)
        while not ended.is_set():
            for restore in server.read_all(Restore):
                status: dict[str, object] = {"phase": "Planned", "plan": PLAN, "message": "planned"}
                if restore.spec.confirm == PLAN["id"]:
                    status = {"phase": "Completed", "message": "it serves"}
                if restore.status.phase != status["phase"]:
                    await client.patch(Restore, restore.key, MergePatch({"status": status}), subresource="status")
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(play()))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def found(server: InMemoryApiServer) -> Restore | None:
    return server.read(Restore, ObjectKey("prod", "r"))


def test_dry_run_prints_the_plan_and_leaves_nothing(archiving: InMemoryApiServer) -> None:
    with controller(archiving):
        result = call("restore", "shop", *TO, "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "2026-03-01 12:29:58 UTC" in result.stdout and "64.0 MiB" in result.stdout
    assert found(archiving) is None


def test_confirmed_restore_waits_for_completion(archiving: InMemoryApiServer) -> None:
    with controller(archiving):
        result = call("restore", "shop", *TO, "--yes", "--keep-previous", "1h", "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["phase"] == "Completed"
    restore = found(archiving)
    assert restore is not None and restore.spec.only is None
    assert restore.spec.target is not None and restore.spec.target.time == datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    assert (restore.spec.confirm, str(restore.spec.keep_previous)) == (PLAN["id"], "1h")


def test_over_overwrites_and_keeps_nothing(archiving: InMemoryApiServer) -> None:
    with controller(archiving):
        result = call("restore", "shop", *TO, "--over", "--yes")
    assert result.exit_code == 0, result.stderr
    restore = found(archiving)
    assert restore is not None and (restore.spec.mode, restore.spec.keep_previous) == ("InPlace", None)


def test_over_is_refused_for_an_undo(server: InMemoryApiServer) -> None:
    result = call("restore", "shop", "--undo", "back", "--over", "-n", "prod")
    assert result.exit_code == 2 and "--over restores from the archive" in result.stderr


def test_undo_needs_no_archive(server: InMemoryApiServer) -> None:
    with controller(server):
        result = call("restore", "shop", "--undo", "back", "--name", "r", "-n", "prod", "--yes")
    assert result.exit_code == 0, result.stderr
    restore = found(server)
    assert restore is not None and restore.spec.undo is not None and restore.spec.target is None
    assert (restore.spec.undo.name, restore.spec.confirm) == ("back", PLAN["id"])


def test_unanswered_question_restores_nothing(archiving: InMemoryApiServer) -> None:
    with controller(archiving):
        result = call("restore", "shop", *TO)
    assert result.exit_code == 1 and "All later commits are lost" in result.stderr
    assert found(archiving) is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--to", "2026-03-01T12:30:00"), 2, "time zone"),
        ((*TO, "--keep-previous", "soon"), 2, "--keep-previous"),
        ((*TO, "--undo", "back"), 2, "either --to or --undo"),
        ((), 2, "either --to or --undo"),
    ],
)
def test_malformed_arguments_are_refused(
    archiving: InMemoryApiServer, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = call("restore", "shop", *arguments)
    assert result.exit_code == code and message in result.stderr


def test_cluster_without_archive_is_refused(server: InMemoryApiServer) -> None:
    result = call("restore", "shop", *TO)
    assert result.exit_code == 1 and "spec.backup" in result.stderr
