"""Health checks, as in controller-runtime's ``pkg/healthz``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping

from steersman.manager.serving.http_server import HttpHandler, ServerRequest, ServerResponse
from steersman.observability.logging import get_logger

_CHECK_TIMEOUT_SECONDS = 5.0

HealthCheck = Callable[[], "str | Awaitable[str | None] | None"]
"""Returns None if healthy, otherwise the problem. A coroutine function may take up to five seconds."""

log = get_logger("manager")


def checks_handler(checks: Mapping[str, HealthCheck], info: Mapping[str, Callable[[], str]]) -> HttpHandler:
    """A handler that runs all ``checks``.

    The response has a line for each check. The status is 500 if one fails.

    Args:
        checks: checks by name.
        info: functions by name whose text is added to the response.
    """

    async def handle(_: ServerRequest) -> ServerResponse:
        names = list(checks)
        results = dict(zip(names, await asyncio.gather(*(_run_check(checks[name]) for name in names)), strict=True))
        lines = [
            f"[+]{name} ok" if failure is None else f"[-]{name} failed: {failure}"
            for name, failure in results.items()
        ]
        lines += [f"[ ]{name}: {describe()}" for name, describe in info.items()]
        failed = any(failure is not None for failure in results.values())
        return ServerResponse("\n".join([*lines, "failed" if failed else "ok", ""]), 500 if failed else 200)

    return handle


async def check_response(check: HealthCheck) -> ServerResponse:
    """The response of a single check."""
    failure = await _run_check(check)
    return ServerResponse("ok\n") if failure is None else ServerResponse(f"{failure}\n", 500)


async def _run_check(check: HealthCheck) -> str | None:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
            result = check()
            return await result if inspect.isawaitable(result) else result
    except TimeoutError:
        return f"no result within {_CHECK_TIMEOUT_SECONDS:g} s"
    except Exception as error:
        # The results of the other checks must still be reported.
        log.warning("health check raised an exception", exc_info=error)
        return f"{type(error).__name__}: {error}"
