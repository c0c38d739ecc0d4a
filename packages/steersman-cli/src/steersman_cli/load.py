"""What a project's code declares, found without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from steersman.errors import ConfigurationError

if TYPE_CHECKING:
    from steersman.client import HttpRequest
    from steersman.manager import Manager, ManagerOptions


def load_manager(setup: Callable[[Manager], None], options: ManagerOptions | None = None) -> Manager:
    """A manager that was set up, and sends nothing. Raises ConfigurationError: ``setup`` sends something."""
    from steersman.manager import Manager

    manager = Manager(_OfflineTransport(), options)
    setup(manager)
    return manager


class _OfflineTransport:
    """Stands where a transport is asked for and none is used."""

    async def request(self, request: HttpRequest) -> NoReturn:
        raise ConfigurationError(f"setup must declare, and not send {request.method} {request.path}")

    def stream(self, request: HttpRequest) -> NoReturn:
        raise ConfigurationError(f"setup must declare, and not watch {request.path}")

    async def close(self) -> None:
        return
