"""What a server can do, found out by its version and by trying."""

from __future__ import annotations

import json
from typing import Any

import pytest

from framework_support.transports import (
    ScriptedTransport,
    Step,
    bookmark_line,
    error_response,
    failure,
    json_response,
    watch_line,
)
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, ServerVersion, detect_features, server_version
from steersman.errors import ConnectionFailed
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

INITIAL_EVENTS_END = json.dumps(
    {
        "type": "BOOKMARK",
        "object": {"metadata": {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}}},
    }
).encode()
NEW_VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
OLD_VERSION = {"major": "1", "minor": "30", "gitVersion": "v1.30.9"}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (NEW_VERSION, (1, 36)),
        ({"major": "1", "minor": "30+", "gitVersion": "v1.30.1-gke.5"}, (1, 30)),
        ({**NEW_VERSION, "emulationMajor": "1", "emulationMinor": "33"}, (1, 33)),
        ({}, (0, 0)),
    ],
)
@virtual_time
async def test_versions(told: dict[str, str], expected: tuple[int, int]) -> None:
    version = await server_version(Client(ScriptedTransport(responses=[json_response(told)])))
    assert (version.major, version.minor) == expected


def test_a_version_reads_well() -> None:
    assert str(ServerVersion(major=1, minor=36, git_version="v1.36.3")) == "v1.36.3"
    assert str(ServerVersion(major=1, minor=30)) == "v1.30"


@virtual_time
async def test_in_memory() -> None:
    server = InMemoryApiServer(virtual_runtime())
    found = await detect_features(Client(server))
    assert (found.comparable_resource_versions, found.watch_list) == (True, True)
    assert server.break_watches() == 0


def list_response(version: str = "7") -> Any:
    return json_response({"metadata": {"resourceVersion": version}, "items": []})


async def detect(version: dict[str, str], *answers: Any, watch: list[Step]) -> tuple[bool, bool]:
    transport = ScriptedTransport(responses=[json_response(version), *answers], streams=[watch], streams_lists=True)
    found = await detect_features(Client(transport))
    return found.comparable_resource_versions, found.watch_list


@virtual_time
async def test_a_new_server() -> None:
    assert await detect(NEW_VERSION, list_response(), watch=[INITIAL_EVENTS_END]) == (True, True)


@virtual_time
async def test_an_old_server() -> None:
    refused: list[Step] = [failure(422, "Invalid")]
    assert await detect(OLD_VERSION, watch=refused) == (False, False)


@pytest.mark.parametrize(
    "watch",
    [[bookmark_line("5")], [watch_line("ADDED", {"metadata": {"name": "a"}})], []],
    ids=["an ordinary bookmark", "an object", "nothing"],
)
@virtual_time
async def test_features_ignored_parameter_means_unsupported(watch: list[Step]) -> None:
    assert await detect(OLD_VERSION, watch=watch) == (False, False)


@pytest.mark.parametrize("version", ["", "0", "007", "a1b2", "-1", "1\n"])
@virtual_time
async def test_a_new_server_on_a_store_of_another_make(version: str) -> None:
    assert await detect(NEW_VERSION, list_response(version), watch=[INITIAL_EVENTS_END]) == (False, True)


@virtual_time
async def test_features_forbidden_probe_means_unsupported() -> None:
    refused: list[Step] = [failure(403, "Forbidden")]
    assert await detect(NEW_VERSION, error_response(403, "Forbidden"), watch=refused) == (False, False)


@virtual_time
async def test_features_unreachable_server_raises() -> None:
    with pytest.raises(ConnectionFailed):
        await detect(NEW_VERSION, list_response(), watch=[ConnectionFailed("reset")])


@virtual_time
async def test_features_probe_uses_the_given_kind() -> None:
    transport = ScriptedTransport(
        responses=[json_response(NEW_VERSION), list_response()], streams=[[INITIAL_EVENTS_END]], streams_lists=True
    )
    await detect_features(Client(transport), ConfigMap)
    assert [r.path for _, r in transport.requests] == ["/version", "/api/v1/configmaps", "/api/v1/configmaps"]
