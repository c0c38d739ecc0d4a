"""Status updates that empty a map, on the real API server."""

from __future__ import annotations

from framework_support import emptied_status
from steersman.client import connect
from steersman_testing.envtest import Envtest


async def test_status_with_emptied_map_on_the_real_server(envtest: Envtest) -> None:
    envtest.install_crds(emptied_status.Tally)
    async with connect(envtest.config) as transport:
        await emptied_status.check_emptied_fields_are_removed(transport)
