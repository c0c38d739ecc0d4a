"""Repeat a read-modify-write sequence after a Conflict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from steersman.errors import AlreadyExists, Conflict
from steersman.observability.runtime import Runtime

R = TypeVar("R")


async def retry_on_conflict(
    fn: Callable[[], Awaitable[R]],
    *,
    attempts: int = 5,
    delay: float = 0.01,
    factor: float = 1.0,
    jitter: float = 0.1,
    runtime: Runtime | None = None,
) -> R:
    """Call ``fn``, again after each ``Conflict``, and return its result.

    ``fn`` must read the object from the API server in each call. A cache could return the outdated object again::

        async def add_label() -> ConfigMap:
            found = await client.get(ConfigMap, key)
            version = found.metadata.resource_version
            patch = MergePatch({"metadata": {"resourceVersion": version, "labels": {"a": "b"}}})
            return await client.patch(ConfigMap, key, patch)

        await retry_on_conflict(add_label)

    Use it in scripts. A reconciler does not catch the Conflict: its request is queued again, and the next reconcile
    decides from the current state. Server-side apply without a UID needs no retries.

    Args:
        fn: reads, changes and writes the object.
        attempts: maximum number of calls, including the first one.
        delay: seconds between the first and the second call.
        factor: growth of the delay with each call.
        jitter: maximum random addition, as a fraction of the delay.
        runtime: clock and jitter.

    Raises:
        Conflict: after the last call. If another manager owns a field of a server-side apply, after the first such
            Conflict, since that conflict persists.
        AlreadyExists: without another call.

    Source: client-go, ``retry.RetryOnConflict`` and its ``DefaultRetry``.
    """
    runtime = runtime or Runtime()
    for _ in range(attempts - 1):
        try:
            return await fn()
        except AlreadyExists:
            raise
        except Conflict as error:
            if any(cause.reason == "FieldManagerConflict" for cause in error.causes):
                raise
        await runtime.clock.sleep(delay * (1 + jitter * runtime.random.random()))
        delay *= factor
    return await fn()
