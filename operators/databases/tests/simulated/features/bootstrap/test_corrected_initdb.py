"""Options of initdb with which no server starts are corrected in the declaration."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from steersman.api.core_v1 import ConfigMap
from steersman.errors import Invalid
from steersman.meta import decode_builtins
from steersman_databases.api.postgresql_cluster import Bootstrap
from steersman_testing import virtual_time

BROKEN = "registry/postgresql:17"
ERROR = 'initdb failed: invalid locale name "de_DE.UTF-8"'
CRASHING: dict[str, Any] = {
    "restartCount": 3,
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "message": ERROR}},
}


def bootstrap(**initdb: Any) -> Bootstrap:
    return decode_builtins({"initdb": {"localeProvider": "libc", "locale": "de_DE.UTF-8", **initdb}}, Bootstrap)


def initdb_options(world: ClusterHarness) -> str:
    configuration = world.server.read(ConfigMap, NAMES.local_configuration)
    return "" if configuration is None else configuration.data["patroni.yaml"]


@virtual_time
async def test_locale_can_be_corrected_before_first_server_runs() -> None:
    world = ClusterHarness()
    world.hosts.crashing[BROKEN] = CRASHING
    async with world.operator():
        await world.create(instances=1, image=BROKEN, bootstrap=bootstrap())
        await world.until("reported", lambda: world.condition("Ready") == "False/InstanceCrashing")
        assert ERROR in world.message("Ready")
        assert "de_DE.UTF-8" in initdb_options(world)
        with pytest.raises(Invalid, match="only encoding, localeProvider, locale and walSegmentSize"):
            await world.change(bootstrap={"initdb": {"owner": "another"}})
        await world.change(bootstrap={"initdb": {"locale": "C.UTF-8"}})
        await world.until("written", lambda: "de_DE.UTF-8" not in initdb_options(world))
        world.hosts.crashing.clear()
        await world.client.delete(type(world.pods()["orders-0"]), world.pods()["orders-0"].key)
        await world.ready(1)
        with pytest.raises(Invalid, match="bootstrap is immutable"):
            await world.change(bootstrap={"initdb": {"locale": "C"}})


@pytest.mark.parametrize(
    ("initdb", "message"),
    [
        ({"locale": "C.UTF-8", "encoding": "LATIN1"}, "locale C.UTF-8 needs encoding UTF8"),
        ({"localeProvider": "builtin"}, "builtin has the locales C and C.UTF-8"),
    ],
)
@virtual_time
async def test_impossible_initdb_options_are_rejected(initdb: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        await ClusterHarness().create(bootstrap=bootstrap(**initdb))


@pytest.mark.parametrize("encoding", ["utf8", "UTF_8", "SQL_ASCII"])
@virtual_time
async def test_encodings_that_fit_all_locales_are_accepted(encoding: str) -> None:
    await ClusterHarness().create(bootstrap=bootstrap(locale="C.UTF-8", encoding=encoding))


@virtual_time
async def test_bootstrap_source_cannot_be_changed() -> None:
    world = ClusterHarness()
    await world.create()
    with pytest.raises(Invalid, match="bootstrap is immutable"):
        await world.change(bootstrap={"initdb": {}})
    assert world.cluster.key == KEY
