"""Threads for DNS, credential files and exec plugins.

User code may fill the default pool of the event loop. Requests and the renewal of credentials must not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MAX_THREADS = 8


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="steersman-client")


async def run_blocking(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call ``function`` in a thread of the client."""
    return await asyncio.get_running_loop().run_in_executor(_pool(), lambda: function(*args, **kwargs))
