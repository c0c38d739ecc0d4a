"""Load of controllers, from two samples of the debug endpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from steersman.errors import ConfigurationError
from steersman_cli.debug_endpoint import DebugEndpoint, fetch_json

_ERROR_RESULT = "error"


class SlowReconcile(msgspec.Struct, frozen=True, kw_only=True):
    """A running or recent reconcile.

    Attributes:
        seconds: duration so far.
        result: ``success``, ``requeue_after`` or ``error``; None while it runs.
        errors: classes of its errors.
        triggers: reasons of the reconcile, as in the debug endpoint.
        omitted_triggers: number of further reasons.
    """

    controller: str
    namespace: str
    name: str
    seconds: float
    result: str | None
    errors: list[str]
    triggers: list[dict[str, Any]]
    omitted_triggers: int


class ControllerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Load of a controller between two samples.

    Attributes:
        state: ``standby`` if another replica is the leader, or the caches are not complete.
        busy: workers that reconcile.
        waiting: keys that are ready.
        oldest_seconds: time that the oldest of them waits, or None.
        delayed: keys that wait for a retry or a timer.
        reconciles_per_second: finished reconciles.
        errors_per_second: failed ones of them.
        mean_seconds: their mean duration, or None without any.
        errors: failed reconciles since the start of the operator.
        slow: running and recent reconciles, slowest first.
    """

    name: str
    kind: str
    state: Literal["active", "standby"]
    workers: int
    busy: int
    waiting: int
    oldest_seconds: float | None
    delayed: int
    reconciles_per_second: float
    errors_per_second: float
    mean_seconds: float | None
    errors: int
    slow: list[SlowReconcile]


class _Reconcile(msgspec.Struct, frozen=True, kw_only=True):
    controller: str
    namespace: str
    name: str
    duration_seconds: float | None
    age_seconds: float = 0.0
    result: str | None
    errors: list[str]
    triggers: list[dict[str, Any]]
    omitted_triggers: int


class _Queue(msgspec.Struct, frozen=True):
    depth: dict[str, int]
    delayed_keys: int
    oldest_seconds: float | None


class ControllerSample(msgspec.Struct, frozen=True, kw_only=True):
    """State of a controller in ``/debug/controllers``."""

    name: str
    kind: str
    started: bool
    workers: int
    running: list[_Reconcile]
    queue: _Queue
    reconciles: dict[str, int]
    reconcile_seconds: float
    slowest: list[_Reconcile]


def fetch_samples(endpoint: DebugEndpoint) -> list[ControllerSample]:
    """Return the state of all controllers.

    Raises:
        ConfigurationError: the operator is unreachable, or its version has no such state.
    """
    content = fetch_json(endpoint, "/debug/controllers", "?limit=10")
    try:
        return msgspec.convert(content, list[ControllerSample])
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"{endpoint.url} does not report the load of controllers ({error}): update Steersman in the operator"
        ) from None


def controller_loads(
    before: Sequence[ControllerSample], after: Sequence[ControllerSample], seconds: float
) -> list[ControllerLoad]:
    """Return the load of each controller.

    Args:
        before: the earlier sample.
        after: the later sample.
        seconds: time between them.
    """
    earlier = {sample.name: sample for sample in before}
    if any(_has_fallen(earlier[sample.name], sample) for sample in after if sample.name in earlier):
        # The counters are those of a new process, which has all controllers.
        earlier = {}
    return [_load(earlier.get(sample.name), sample, seconds) for sample in after]


def _load(before: ControllerSample | None, after: ControllerSample, seconds: float) -> ControllerLoad:
    total, errors = sum(after.reconciles.values()), after.reconciles.get(_ERROR_RESULT, 0)
    duration = after.reconcile_seconds
    if before is not None:
        total -= sum(before.reconciles.values())
        errors -= before.reconciles.get(_ERROR_RESULT, 0)
        duration -= before.reconcile_seconds
    return ControllerLoad(
        name=after.name,
        kind=after.kind,
        state="active" if after.started else "standby",
        workers=after.workers,
        busy=len(after.running),
        waiting=sum(after.queue.depth.values()),
        oldest_seconds=after.queue.oldest_seconds,
        delayed=after.queue.delayed_keys,
        reconciles_per_second=total / seconds,
        errors_per_second=errors / seconds,
        mean_seconds=duration / total if total else None,
        errors=after.reconciles.get(_ERROR_RESULT, 0),
        slow=sorted(_slow_reconciles(after), key=lambda each: -each.seconds),
    )


def _has_fallen(before: ControllerSample, after: ControllerSample) -> bool:
    """Return True if a counter is smaller than before."""
    counts = any(after.reconciles.get(result, 0) < count for result, count in before.reconciles.items())
    return counts or after.reconcile_seconds < before.reconcile_seconds


def _slow_reconciles(sample: ControllerSample) -> Iterator[SlowReconcile]:
    for each in (*sample.running, *sample.slowest):
        yield SlowReconcile(
            controller=each.controller,
            namespace=each.namespace,
            name=each.name,
            seconds=each.age_seconds if each.duration_seconds is None else each.duration_seconds,
            result=each.result,
            errors=each.errors,
            triggers=each.triggers,
            omitted_triggers=each.omitted_triggers,
        )
