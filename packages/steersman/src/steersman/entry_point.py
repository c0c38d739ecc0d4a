"""The entry point of an operator's process. It imports nothing that takes long."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from steersman.webhook import WebhookServerOptions


def run(
    setup: Callable[..., None] | str, *, name: str, webhooks: WebhookServerOptions | str | None = None, **options: Any
) -> None:
    """Run an operator until SIGTERM, with the flags of its command line.

    The flags are those of ``manager.flags``. Parameters of ``setup`` after the manager become options of the command.
    Logs, metrics, probes, leader election and signals follow the flags.

    Args:
        setup: registers controllers and webhooks: ``def setup(manager)``. Or its import path, such as
            ``shop.main:setup``, which is imported when SIGTERM is already handled.
        name: name of the operator: field manager, source of Events, and default name of the Lease.
        webhooks: settings of the webhook server, or their import path. Adds the option ``--no-webhooks``.
            Defaults to no webhooks.
        options: other fields of ``ManagerOptions``, such as ``tracing``.

    Raises:
        SystemExit: the operator has ended. The code is 1 after an error and 2 for an invalid flag.

    Example:
        ``run("shop.main:setup", name="shop-operator")``
    """
    # As PID 1 of a container, Python ignores SIGTERM until a handler is installed. The imports below take a second.
    signal.signal(signal.SIGTERM, _exit)
    from steersman.manager.flags import run_command

    run_command(setup, name=name, webhooks=webhooks, **options)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
