"""Fixtures for the conformance cases on the real API server."""

from __future__ import annotations

import asyncio

import pytest

from apiserver_cases import CRDS
from apiserver_cases.installation import install_crds
from steersman.client import connect
from steersman_testing.envtest import Envtest


@pytest.fixture(scope="session")
def envtest_of_cases(envtest: Envtest) -> Envtest:
    """Real API server with the CRDs of the cases, installed once."""

    async def installed() -> None:
        async with connect(envtest.config, retry=None) as transport:
            await install_crds(transport, CRDS)

    asyncio.run(installed())
    return envtest
