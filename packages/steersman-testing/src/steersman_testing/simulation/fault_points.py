"""Where faults can be injected: the operator's calls, the events of its watches, and the effects of user code."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol


class EffectInterceptor(Protocol):
    """A simulated process, as its effects see it."""

    def intercept_effect(self, name: str, failures: tuple[Exception, ...]) -> AbstractAsyncContextManager[None]:
        """Stands around an effect; raises what is to go wrong instead of it, or with its answer."""
        ...


current_process: contextvars.ContextVar[EffectInterceptor | None] = contextvars.ContextVar(
    "simulated_process", default=None
)
"""The simulated process whose code runs, if any."""


@asynccontextmanager
async def fault_point(name: str, *failures: Exception) -> AsyncGenerator[None]:
    """Makes an effect outside Kubernetes, such as a SQL statement, a place where a simulation injects faults.

    The process may end before or after the block; and if ``failures`` are given, the first is raised in place of the
    block, or after it, as when the answer is lost. Outside a simulation nothing happens::

        async with fault_point(f"DROP DATABASE {name}", ConnectionError("the server is gone")):
            self.databases.discard(name)

    Args:
        name: what is done, for people; the same for the same effect in every run.
        failures: errors as the real effect would raise them.
    """
    process = current_process.get()
    if process is None:
        yield
        return
    async with process.intercept_effect(name, failures):
        yield
