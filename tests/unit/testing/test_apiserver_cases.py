"""The cases that the real server passes, too: see ``tests/integration/testing``."""

from __future__ import annotations

import pytest

from apiserver_cases import CASES, CRDS, Api
from steersman.testing import InMemoryApiServer, virtual_runtime, virtual_time


@pytest.mark.parametrize("case", CASES)
@virtual_time
async def test_in_memory(case: str) -> None:
    # As with envtest, no controllers run.
    server = InMemoryApiServer(virtual_runtime(), controllers=False)
    server.load(*CRDS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "case"}})
    await CASES[case](Api(server, "case"))
