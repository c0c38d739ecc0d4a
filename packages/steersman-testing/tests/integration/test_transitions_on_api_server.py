"""Generated changes on the real API server: what is right passes, and what is wrong is found there too."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from framework_support import harbour
from framework_support.harbour import Harbour, Process, setup, setup_with
from steersman.api.core_v1 import ConfigMap
from steersman.manager import Manager
from steersman_testing.envtest import Envtest
from steersman_testing.transitions import Budget, ClusterPatience, Hints, Report, Systems, explore, on_cluster

HINTS = Hints(bad={"spec.image": [harbour.GONE]})
PATIENCE = ClusterPatience(quiet=0.2, look_every=0.04, limit=20)


@asynccontextmanager
async def systems(envtest: Envtest, operator: Callable[[Manager], None]) -> AsyncGenerator[Systems]:
    envtest.install_crds(Harbour)
    async with envtest.client() as client, Process(client.transport, operator) as process:
        # Nobody runs a controller manager beside envtest.
        yield on_cluster(
            client, Harbour, observed=[ConfigMap], restart=process.restart, controllers=False, patience=PATIENCE
        )


async def explored(envtest: Envtest, operator: Callable[[Manager], None], replay: str = "") -> Report:
    async with systems(envtest, operator) as places:
        return await explore(Harbour, places, HINTS, budget=Budget(changes=12), replay=replay)


@pytest.mark.timeout(180)
async def test_an_operator_follows_each_field(envtest: Envtest) -> None:
    report = await explored(envtest, setup)
    report.check()
    done, wanted = report.coverage.count("alter")
    assert done == wanted == 10


REPLAYS = {
    "convergence": (
        harbour.KeepsTheBanner,
        '{"start":{"spec":{"title":"a","banner":"a"}},"changes":[["remove",{},["spec.banner"]]]}',
        'ConfigMap (namespace)/trial data.banner: "a" / missing',
    ),
    "rollback": (
        harbour.BearsAGrudge,
        '{"start":{"spec":{"title":"a"}},"changes":[["bad",{"spec.image":"registry.example.com/gone"}],["rollback"]]}',
        "ImageUnknown",
    ),
    "refusal": (
        harbour.HarbourReconciler,
        '{"start":{"spec":{"title":"a"}},"changes":[["invalid",{"spec.berths":20}]]}',
        "takes what the schema forbids",
    ),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("oracle", REPLAYS)
async def test_a_failure_is_played_again_there(envtest: Envtest, oracle: str) -> None:
    reconciler, replay, words = REPLAYS[oracle]
    report = await explored(envtest, setup_with(reconciler), replay)
    assert [f.oracle for f in report.failures] == [oracle]
    assert words in str(report.failures[0])


@pytest.mark.timeout(120)
async def test_what_the_real_server_refuses_is_refused_with_a_word(envtest: Envtest) -> None:
    bad = '["invalid",{"spec.region":"south"}],["invalid",{"spec.depth":"0"}],["misspell",{"spec.bannre":"a"}]'
    (await explored(envtest, setup, '{"start":{"spec":{"title":"a"}},"changes":[' + bad + "]}")).check()
