"""``GET /leader/NAMESPACE/NAME`` for pods without a sidecar.

Each replica of the operator serves it from its cache.
"""

from __future__ import annotations

import asyncio

from steersman import Manager, ObjectKey
from steersman.cache import CachedClient
from steersman.manager.serving import HttpServer, ServerRequest, ServerResponse

from leader_operator.api.v1.leaderservice import LeaderService
from leader_operator.resources import leader_document

PORT = 8083


async def leader_response(client: CachedClient, path: str) -> ServerResponse:
    """Return the leader of the LeaderService that ``path`` names."""
    parts = path.strip("/").split("/")
    if len(parts) != 3 or parts[0] != "leader":
        return ServerResponse("not found: use /leader/NAMESPACE/NAME\n", 404)
    service = await client.get_or_none(LeaderService, ObjectKey(parts[1], parts[2]))
    if service is None:
        return ServerResponse(f"LeaderService {parts[1]}/{parts[2]} does not exist\n", 404)
    return ServerResponse(leader_document(service.status.leader), content_type="application/json")


def serve_leaders(manager: Manager, port: int = PORT) -> None:
    """Serve the leaders in every replica while the manager runs."""

    async def handle(request: ServerRequest) -> ServerResponse:
        return await leader_response(manager.client, request.path)

    async def run() -> None:
        server = HttpServer(None, port, handle)
        await server.start()
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop()

    manager.add(run, name="discovery", needs_leader_election=False)
