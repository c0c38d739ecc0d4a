"""Health check of the application by HTTP."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from http.client import HTTPException

FAILURE_THRESHOLD = 3
"""Consecutive failures after which a leader ends its term."""
HEALTH_TIMEOUT_SECONDS = 1.0
"""Time for a health check, including name resolution and redirects."""

HealthCheck = Callable[[], Awaitable[bool]]


def http_health_check(url: str) -> HealthCheck:
    """Return a check of ``url``. An empty URL is always healthy."""

    async def check() -> bool:
        return not url or await asyncio.to_thread(_responds, url)

    return check


def _responds(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=HEALTH_TIMEOUT_SECONDS):
            return True
    except (urllib.error.URLError, HTTPException, OSError, ValueError):
        return False
