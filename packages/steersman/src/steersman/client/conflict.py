"""Read, change, write, and from the beginning when somebody else was faster."""

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
    """What ``fn`` returns, called again while it raises ``Conflict``.

    ``fn`` must read the object anew each time, live and not from a cache, which would give the old one again::

        async def add_label() -> ConfigMap:
            found = await client.get(ConfigMap, key)
            version = found.metadata.resource_version
            patch = MergePatch({"metadata": {"resourceVersion": version, "labels": {"a": "b"}}})
            return await client.patch(ConfigMap, key, patch)

        await retry_on_conflict(add_label)

    Use it in scripts. A reconciler lets the Conflict pass: its request is queued again and decides anew on what it
    then reads, whereas this repeats a decision that may be out of date. Server-side apply needs
    neither, unless with a UID.

    Args:
        attempts: calls in all.
        delay: seconds between the first and the second call.
        factor: by which the delay grows with each call.
        jitter: share of the delay that is added at random.
        runtime: clock and jitter.

    Raises:
        Conflict: after the last call; or at once, where another manager owns a field of a server-side apply, since
            that does not pass by itself.
        AlreadyExists: at once.

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
