"""Status updates that empty a map or a struct."""

from __future__ import annotations

from framework_support import emptied_status
from framework_support.status_versions import Release
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time


@virtual_time
async def test_status_with_emptied_map_is_accepted() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.register(emptied_status.Tally)
    await emptied_status.check_emptied_fields_are_removed(server)
    server.requests.clear()
    await Release(server, emptied_status.Tally, "t").status(**emptied_status.EMPTY)
    assert [request.method for request in server.requests if request.method != "GET"] == []
