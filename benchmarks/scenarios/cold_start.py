"""Cold start: reconcile N existing objects after the operator starts.

The operator creates one owned ConfigMap per object and updates each status. Time runs from the start of its process,
including imports, until a watch observes the last status. CPU and memory include only the operator's process. The API
server and etcd share the other cores and are the bottleneck. Objects/s therefore also depend on the server's cost of
the operator's requests.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import msgspec

from benchmarks.environment import NAMESPACE, BenchmarkApiServer
from benchmarks.load import create_works
from benchmarks.measurement import Figure
from benchmarks.peers import OperatorSettings, Peer
from benchmarks.work import Work
from steersman.api.events_v1 import Event
from steersman.client import Client

TIMEOUT_SECONDS = 900.0
_EVENTS_POLL_INTERVAL_SECONDS = 0.1
_EVENTS_QUIET_SECONDS = 5.0


@dataclass(slots=True)
class _Progress:
    first: float = 0.0
    last: float = 0.0


async def measure(server: BenchmarkApiServer, peer: Peer, objects: int, *, events: bool = False) -> list[Figure]:
    """Measure one cold start.

    Args:
        objects: number of objects.
        events: record one Event per object and also wait for the last Event.

    Raises:
        OperatorFailed: the operator exited early.
        TimeoutError: the run took more than 15 minutes.
    """
    version = await create_works(server, objects)
    settings = OperatorSettings(server.kubeconfig, NAMESPACE, events=events)
    server_cpu, started_at = server.cpu, time.perf_counter()
    async with server.operator(peer, settings) as operator:
        progress = await operator.wait_for(wait_until_all_done(server.client, version, objects), TIMEOUT_SECONDS)
        event_count, last = await _wait_for_events(server.client, objects) if events else (0, progress.last)
        cpu, rss = operator.cpu, operator.peak_rss
    figures = [
        Figure("objects per second", objects / (max(last, progress.last) - started_at), "1/s"),
        Figure("CPU per object", cpu / objects * 1000, "ms"),
        Figure("peak RSS", rss, "MiB"),
        Figure("first object done after", progress.first - started_at, "s"),
        Figure("API server CPU per object", (server.cpu - server_cpu) / objects * 1000, "ms"),
    ]
    return [*figures, Figure("Events written", event_count / objects * 100, "%")] if events else figures


async def wait_until_all_done(client: Client, version: str, objects: int) -> _Progress:
    """Wait until a watch from ``version`` has observed ``objects`` statuses."""
    completed_keys: set[str] = set()
    progress = _Progress()
    async for event in client.watch(Work, resource_version=version, namespace=NAMESPACE, timeout=TIMEOUT_SECONDS):
        work = event.object
        if work is None or work.status.config_map is None:
            continue
        if not completed_keys:
            progress.first = time.perf_counter()
        completed_keys.add(work.metadata.name)
        if len(completed_keys) == objects:
            progress.last = time.perf_counter()
            return progress
    raise TimeoutError(f"the watch ended with {len(completed_keys)} of {objects} objects reconciled")


async def _wait_for_events(client: Client, objects: int) -> tuple[int, float]:
    """Wait for the Events. Return their number and the last one's time.

    Event recorders may drop Events. client-go does so if its queue exceeds 1,000.
    """
    count, last = 0, time.perf_counter()
    while count < objects and time.perf_counter() - last < _EVENTS_QUIET_SECONDS:
        await asyncio.sleep(_EVENTS_POLL_INTERVAL_SECONDS)
        if (now := await _count_events(client)) != count:
            count, last = now, time.perf_counter()
    return count, last


async def _count_events(client: Client) -> int:
    listed = await client.raw(Event.api_resource.path(namespace=NAMESPACE), query={"limit": "1"})
    page = msgspec.json.decode(listed, type=_Page)
    return len(page.items) + page.metadata.remaining_item_count


class _PageMetadata(msgspec.Struct, rename="camel"):
    remaining_item_count: int = 0


class _Page(msgspec.Struct):
    metadata: _PageMetadata
    items: list[msgspec.Raw]
