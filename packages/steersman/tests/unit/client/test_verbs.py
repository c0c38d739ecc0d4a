"""Verbs on the in-memory API server.

The real API server passes the same cases in ``tests/integration/client/test_verbs.py``.
"""

from __future__ import annotations

import pytest

from apiserver_cases import CRDS
from framework_support.client_cases import CASES
from steersman.client import Client
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time


@pytest.mark.parametrize("case", CASES)
@virtual_time
async def test_verbs_on_in_memory_server(case: str) -> None:
    server = InMemoryApiServer(virtual_runtime(), controllers=False)
    server.load(*CRDS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "case"}})
    await CASES[case](Client(server, field_manager="tester"), "case")
