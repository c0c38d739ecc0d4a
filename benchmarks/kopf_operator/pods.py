"""Every pod is held in an index, as Kopf's users cache, and each of its changes is counted."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import kopf
from settings import configure

_TICK = 0.005
_REPORT_EVERY = 1.0


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    configure(settings)
    memo.reconciles = 0
    memo.reporter = asyncio.create_task(report_pauses(memo))


@kopf.index("pods")
def pods(name: str, namespace: str, body: kopf.Body, **_: Any) -> dict[tuple[str, str], Any]:
    pod = dict(body)
    pod["metadata"] = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    return {(namespace, name): pod}


@kopf.on.event("pods")
async def changed(memo: kopf.Memo, **_: Any) -> None:
    memo.reconciles += 1


async def report_pauses(memo: kopf.Memo) -> None:
    """Says every second how much later than asked a timer fired, at the worst."""
    longest, report_at = 0.0, time.monotonic() + _REPORT_EVERY
    while True:
        asked = time.monotonic() + _TICK
        await asyncio.sleep(_TICK)
        now = time.monotonic()
        longest = max(longest, now - asked)
        if now >= report_at:
            print(json.dumps({"reconciles": memo.reconciles, "pause_ms": longest * 1000}), flush=True)
            longest, report_at = 0.0, now + _REPORT_EVERY
