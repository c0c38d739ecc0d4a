"""Fixtures for fault tests: changing Gadgets, and an operator in a process."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from framework_support.churn import Churn
from framework_support.fault_tests import FaultScale, StartOperator, chosen_scale
from framework_support.operator_process import OperatorProcess
from steersman.client import Client, connect
from steersman_testing.envtest import Envtest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the timeout of fault tests, which wait for many deadlines."""
    # Compare strings, because that is faster than paths for thousands of tests.
    ours = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(ours):
            item.add_marker(pytest.mark.timeout(4 * chosen_scale().patience))


@pytest.fixture(scope="session")
def scale() -> FaultScale:
    return chosen_scale()


@pytest.fixture(scope="module")
def uncached_envtest() -> Generator[Envtest]:
    """Start an API server without a watch cache.

    Its history ends with that of etcd.
    """
    with Envtest.start(arguments={"watch-cache": "false"}) as environment:
        yield environment


@pytest.fixture
async def churn(scale: FaultScale, request: pytest.FixtureRequest) -> AsyncGenerator[Churn]:
    """Create Gadgets in a separate namespace of the requested API server."""
    name = "uncached_envtest" if "uncached_envtest" in request.fixturenames else "envtest"
    envtest: Envtest = request.getfixturevalue(name)
    test = cast("pytest.Item", request.node)  # pyright: ignore[reportUnknownMemberType]
    words = re.sub(r"[^a-z0-9]+", "-", test.name.lower()).strip("-")
    async with connect(envtest.config) as transport:
        client = Client(transport, field_manager="churn")
        made = Churn(client, words[:60], objects=scale.objects, rate=scale.rate, patience=scale.patience)
        await made.install()
        await made.create()
        yield made
        await made.delete_all()


@pytest.fixture
def operator(churn: Churn, tmp_path: Path) -> StartOperator:
    @asynccontextmanager
    async def start(kubeconfig: Path, *arguments: str, name: str = "a") -> AsyncGenerator[OperatorProcess]:
        process = OperatorProcess(tmp_path, kubeconfig, churn.namespace, *arguments, name=name)
        try:
            await process.wait_for_log("listening")
            yield process
        finally:
            process.kill()

    return start
