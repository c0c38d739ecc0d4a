"""All scenarios in their order of execution."""

from __future__ import annotations

from functools import partial

from benchmarks.environment import api_server
from benchmarks.scenarios import Scenario, cached_pods, cold_start, idle, restart, steady_changes

SIZES = (2_000, 10_000)
WITH_EVENTS = 2_000
PODS = 50_000


def cold_start_title(objects: int, *, events: bool = False) -> str:
    """Return the title of a cold start in the results."""
    return f"cold start, {objects:,} objects{', one Event each' if events else ''}"


STEADY = f"steady {steady_changes.RATE:.0f} changes/s"
RESTART = "restart with nothing to do"
IDLE = "idle"


def pods_title(pods: int) -> str:
    """Return the title of the pod scenario in the results."""
    return f"{pods:,} pods cached"


def scenarios(objects: int | None = None, pods: int = PODS) -> list[Scenario]:
    """Return all scenarios.

    Args:
        objects: number of objects in a cold start. Defaults to the compared sizes.
        pods: number of cached pods.
    """
    sizes = SIZES if objects is None else (objects,)
    with_events = WITH_EVENTS if objects is None else objects
    eventful = partial(cold_start.measure, objects=with_events, events=True)
    return [
        *(Scenario("a", cold_start_title(n), partial(cold_start.measure, objects=n), api_server) for n in sizes),
        Scenario("a", cold_start_title(with_events, events=True), eventful, api_server),
        Scenario("b", STEADY, steady_changes.measure, api_server),
        Scenario("c", pods_title(pods), cached_pods.measure, cached_pods.server_with_pods, shared=True),
        Scenario("d", RESTART, restart.measure, restart.audited_server),
        Scenario("e", IDLE, idle.measure, api_server),
    ]
