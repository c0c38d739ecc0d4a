"""A reflector that runs on a script, and what can be asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from framework_support.scripted_transport import ScriptedTransport
from framework_support.widget import Widget
from steersman.cache import Informer, Reflector, Selection
from steersman.cache.options import WatchScope
from steersman.client import Client
from steersman_testing.virtual_clock import virtual_runtime

SELECTED = (WatchScope(selection=Selection(label_selector="x=y")),)


@asynccontextmanager
async def running_reflector(transport: ScriptedTransport) -> AsyncGenerator[Informer[Widget], None]:
    """An informer whose reflector runs; it must still do so at the end."""
    informer = Informer(Client(transport), Widget, runtime=virtual_runtime(), scopes=SELECTED)
    task = asyncio.create_task(reflector_of(informer).run())
    try:
        yield informer
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def reflector_of(informer: Informer[Widget]) -> Reflector[Widget]:
    return informer.reflectors[0]


def versions_by_name(informer: Informer[Widget]) -> dict[str, str]:
    return {o.metadata.name: o.metadata.resource_version for o in informer.store}


def requested_versions(transport: ScriptedTransport) -> list[str]:
    """``list``, or the version from which it was watched."""
    return [r.query.get("resourceVersion", "list") for _, r in transport.requests]
