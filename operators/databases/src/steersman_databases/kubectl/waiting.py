"""Waiting of ``kubectl steersman`` for objects, with their progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from steersman.client import Client
from steersman.meta import Object
from steersman_databases.api import Backup, Restore
from steersman_databases.kubectl.command import OperationRejected, print_note

POLL_SECONDS = 1.0

AnyObject = TypeVar("AnyObject", bound=Object)
Phased = TypeVar("Phased", Backup, Restore)


async def wait_until_done(
    client: Client,
    obj: AnyObject,
    progress: Callable[[AnyObject], tuple[str, str] | None],
    seconds: float,
    unfinished: str,
) -> AnyObject:
    """Wait until an object is done, and print its progress.

    Args:
        progress: returns a prefix and the progress, or None if it is done. It raises OperationRejected if it failed.
        unfinished: start of the error message.

    Raises:
        OperationRejected: it failed, or was not done in time.
    """
    deadline, shown = time.monotonic() + seconds, ""
    while True:
        obj = await client.get(type(obj), obj.key)
        found = progress(obj)
        if found is None:
            return obj
        prefix, message = found
        if message != shown:
            print_note(f"{prefix}{message}")
            shown = message
        if time.monotonic() > deadline:
            raise OperationRejected(f"{unfinished}: {message}")
        await asyncio.sleep(POLL_SECONDS)


async def wait_until_completed(client: Client, obj: Phased, seconds: float) -> Phased:
    """Wait until a backup or restore has completed, and print its progress.

    Raises:
        OperationRejected: it failed, or did not complete in time.
    """
    name = f"{obj.api_resource.kind.lower()} {obj.metadata.name}"

    def progress(found: Backup | Restore) -> tuple[str, str] | None:
        phase, message = found.status.phase or "Pending", found.status.message or ""
        if phase == "Failed":
            raise OperationRejected(f"{name} failed: {message}")
        return None if phase == "Completed" else (f"{phase}: ", message)

    unfinished = f"{name} has not completed within {seconds:.0f} s and continues"
    return await wait_until_done(client, obj, progress, seconds, unfinished)
