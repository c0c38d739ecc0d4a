"""Pod operator on Kopf. A dictionary caches the pods; see ``work.py``."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import kopf
from settings import configure

_TICK_SECONDS = 0.005
_REPORT_INTERVAL_SECONDS = 1.0

_reconciles = 0  # Kopf copies a memo per object, so a shared counter must be global
_pods: dict[tuple[str, str], dict[str, Any]] = {}
_reporters: set[asyncio.Task[None]] = set()


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
    configure(settings)
    _reporters.add(asyncio.create_task(report_pauses()))


@kopf.on.event("pods")
async def changed(name: str, namespace: str, body: kopf.Body, **_: Any) -> None:
    global _reconciles
    pod = dict(body)
    pod["metadata"] = {key: value for key, value in pod["metadata"].items() if key != "managedFields"}
    _pods[namespace, name] = pod
    _reconciles += 1


async def report_pauses() -> None:
    """Print the longest timer delay of each second."""
    longest, report_at = 0.0, time.monotonic() + _REPORT_INTERVAL_SECONDS
    while True:
        deadline = time.monotonic() + _TICK_SECONDS
        await asyncio.sleep(_TICK_SECONDS)
        now = time.monotonic()
        longest = max(longest, now - deadline)
        if now >= report_at:
            print(json.dumps({"reconciles": _reconciles, "pause_ms": longest * 1000}), flush=True)
            longest, report_at = 0.0, now + _REPORT_INTERVAL_SECONDS
