"""Fault points: external effects that a simulation can fail."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol


class EffectInterceptor(Protocol):
    """The simulated process, as ``fault_point`` uses it."""

    def intercept_effect(self, name: str, failures: tuple[Exception, ...]) -> AbstractAsyncContextManager[None]:
        """Context manager around an effect that raises the injected error."""
        ...


current_process: contextvars.ContextVar[EffectInterceptor | None] = contextvars.ContextVar(
    "simulated_process", default=None
)
"""The simulated process whose code is running, if any."""


@asynccontextmanager
async def fault_point(name: str, *failures: Exception) -> AsyncGenerator[None]:
    """Declare an external effect, such as a SQL statement, for fault injection.

    A simulation kills the process before or after the block. If ``failures`` are given, it also raises the first of
    them instead of the block, or after the block, as if the response was lost. Outside of a simulation it does
    nothing::

        async with fault_point(f"DROP DATABASE {name}", ConnectionError("connection refused")):
            self.databases.discard(name)

    Args:
        name: description of the effect. The same effect has the same name in every run.
        failures: errors that the real effect may raise.
    """
    process = current_process.get()
    if process is None:
        yield
        return
    async with process.intercept_effect(name, failures):
        yield
