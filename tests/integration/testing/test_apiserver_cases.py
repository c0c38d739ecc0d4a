"""The in-memory server's cases, on the real one: what is expected of the former is true of the latter."""

from __future__ import annotations

import itertools
import os

import pytest

from apiserver_cases import CASES, CRDS
from apiserver_cases.installation import install, make_namespace
from steersman.client import connect
from steersman.testing.envtest import Envtest

_numbers = itertools.count()


@pytest.mark.parametrize("case", CASES)
async def test_on_the_real_server(case: str, envtest: Envtest) -> None:
    async with connect(envtest.config) as transport:
        await install(transport, CRDS)
        await CASES[case](await make_namespace(transport, f"case-{os.getpid()}-{next(_numbers)}"))
