"""The verbs on the real API server, and what older servers lack."""

from __future__ import annotations

import itertools
import os

import pytest

from apiserver_cases import CRDS
from apiserver_cases.installation import install, make_namespace
from client_cases import CASES
from steersman.client import Client, connect
from steersman.testing.envtest import Envtest

_numbers = itertools.count()


@pytest.mark.parametrize("case", CASES)
async def test_on_the_real_server(case: str, envtest: Envtest) -> None:
    async with connect(envtest.config) as transport:
        await install(transport, CRDS)
        namespace = f"verbs-{os.getpid()}-{next(_numbers)}"
        await make_namespace(transport, namespace)
        await CASES[case](Client(transport, field_manager="tester"), namespace)
