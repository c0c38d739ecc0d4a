"""Conformance cases on the real server."""

from __future__ import annotations

import asyncio

import pytest

from apiserver_cases import CASES, CRDS, KNOWN_DIFFERENCES, NOT_IMPLEMENTED
from apiserver_cases.servers import CaseResult, new_namespace, run_in_memory, run_on_real_server
from apiserver_cases.transcript import difference, outcome_difference
from steersman.client import connect
from steersman_testing.envtest import Envtest


@pytest.mark.parametrize("case", CASES)
def test_on_the_real_server(case: str, envtest_of_cases: Envtest) -> None:
    namespace = new_namespace()
    theirs = asyncio.run(_run_on_real_server(case, namespace, envtest_of_cases))
    if theirs.failure is not None:
        raise theirs.failure
    if case not in NOT_IMPLEMENTED:
        ours = run_in_memory(CASES[case], CRDS, namespace)
        compare = outcome_difference if case in KNOWN_DIFFERENCES else difference
        assert not compare(ours.exchanges, theirs.exchanges)


async def _run_on_real_server(case: str, namespace: str, envtest: Envtest) -> CaseResult:
    # Temporary errors of the server are responses as well.
    async with connect(envtest.config, retry=None) as transport:
        return await run_on_real_server(envtest, transport, CASES[case], namespace)
