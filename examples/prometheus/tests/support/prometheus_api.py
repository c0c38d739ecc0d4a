"""Queries of Prometheus by tests."""

from __future__ import annotations

import asyncio
import http.client
import json
from dataclasses import dataclass
from typing import Any

from monitoring_operator.resources import PORT


@dataclass(frozen=True, slots=True)
class Target:
    """A target as ``/api/v1/targets`` reports it."""

    job: str
    health: str
    url: str
    labels: dict[str, str]
    error: str


async def active_targets(ip: str) -> list[Target]:
    """Return the targets of a server, in the order of their URLs."""
    data = await asyncio.to_thread(_get, ip, "/api/v1/targets?state=active")
    found = [
        Target(each["scrapePool"], each["health"], each["scrapeUrl"], each["labels"], each["lastError"])
        for each in data["activeTargets"]
    ]
    return sorted(found, key=lambda target: (target.job, target.url))


async def rule_names(ip: str) -> list[str]:
    """Return the names of all rules of a server."""
    data = await asyncio.to_thread(_get, ip, "/api/v1/rules")
    return sorted(rule["name"] for group in data["groups"] for rule in group["rules"])


def _get(ip: str, path: str) -> Any:
    connection = http.client.HTTPConnection(ip, PORT, timeout=10)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())["data"]
    finally:
        connection.close()
