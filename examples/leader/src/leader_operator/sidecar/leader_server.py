"""``GET /leader`` and ``GET /leading`` on localhost."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from steersman.manager.serving import HttpHandler, ServerRequest, ServerResponse

from leader_operator.sidecar.sidecar import LeaderReport


def leader_handler(report: Callable[[], LeaderReport]) -> HttpHandler:
    """Return the handler of the sidecar.

    ``/leader`` responds with a JSON object, and ``/leading`` with 200 if this pod leads, else with 503.
    """

    async def handle(request: ServerRequest) -> ServerResponse:
        current = report()
        if request.path == "/leader":
            return ServerResponse(leader_document(current), content_type="application/json")
        if request.path == "/leading":
            status = 200 if current.leading else 503
            return ServerResponse(f"{current.term}\n" if current.leading else "not leading\n", status)
        return ServerResponse("not found: use /leader or /leading\n", 404)

    return handle


def leader_document(report: LeaderReport) -> bytes:
    """Return the JSON of a report, with a line feed."""
    fields = {
        "leader": report.leader or None,
        "leading": report.leading,
        "term": report.term,
        "validSeconds": int(report.valid_seconds * 10) / 10,
    }
    return msgspec.json.encode(fields) + b"\n"
