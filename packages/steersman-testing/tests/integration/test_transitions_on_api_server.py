"""Generated changes on the real API server, with correct and faulty operators."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from framework_support import webapp
from framework_support.webapp import InProcessOperator, WebApp, setup, setup_with
from steersman.api.core_v1 import ConfigMap
from steersman.manager import Manager
from steersman_testing.envtest import Envtest
from steersman_testing.transitions import (
    Budget,
    ClusterSettleOptions,
    ExplorationReport,
    Hints,
    SystemFactory,
    explore,
    on_cluster,
)

HINTS = Hints(bad={"spec.image": [webapp.MISSING_IMAGE]})
SETTLE_OPTIONS = ClusterSettleOptions(quiet=0.2, poll_interval=0.04, timeout=20)


@asynccontextmanager
async def systems(envtest: Envtest, operator: Callable[[Manager], None]) -> AsyncGenerator[SystemFactory]:
    envtest.install_crds(WebApp)
    async with envtest.client() as client, InProcessOperator(client.transport, operator) as process:
        # envtest has no controller manager.
        yield on_cluster(
            client,
            WebApp,
            observed=[ConfigMap],
            restart=process.restart,
            controller_manager=False,
            settle_options=SETTLE_OPTIONS,
        )


async def run_exploration(
    envtest: Envtest, operator: Callable[[Manager], None], replay: str = ""
) -> ExplorationReport:
    async with systems(envtest, operator) as system_factory:
        return await explore(WebApp, system_factory, HINTS, budget=Budget(changes=12), replay=replay)


@pytest.mark.timeout(180)
async def test_an_operator_follows_each_field(envtest: Envtest) -> None:
    report = await run_exploration(envtest, setup)
    report.check()
    done, wanted = report.coverage.count("alter")
    assert done == wanted == 10


REPLAYS = {
    "convergence": (
        webapp.NeverRemovesKeys,
        '{"start":{"spec":{"title":"a","banner":"a"}},"changes":[["remove",{},["spec.banner"]]]}',
        'ConfigMap (namespace)/trial data.banner: "a" / missing',
    ),
    "rollback": (
        webapp.NeverRecovers,
        '{"start":{"spec":{"title":"a"}},"changes":[["bad",{"spec.image":"registry.example.com/gone"}],["rollback"]]}',
        "ImageUnknown",
    ),
    "refusal": (
        webapp.WebAppReconciler,
        '{"start":{"spec":{"title":"a"}},"changes":[["invalid",{"spec.replicas":20}]]}',
        "accepts a value that the schema forbids",
    ),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("oracle", REPLAYS)
async def test_a_failure_is_played_again_there(envtest: Envtest, oracle: str) -> None:
    reconciler, replay, words = REPLAYS[oracle]
    report = await run_exploration(envtest, setup_with(reconciler), replay)
    assert [f.oracle for f in report.failures] == [oracle]
    assert words in str(report.failures[0])


@pytest.mark.timeout(120)
async def test_rejected_changes_have_a_message(envtest: Envtest) -> None:
    bad = '["invalid",{"spec.region":"south"}],["invalid",{"spec.memory":"0"}],["misspell",{"spec.bannre":"a"}]'
    (await run_exploration(envtest, setup, '{"start":{"spec":{"title":"a"}},"changes":[' + bad + "]}")).check()
