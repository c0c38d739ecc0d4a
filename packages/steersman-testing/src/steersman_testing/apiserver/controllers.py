"""Runs the controllers and their webhook calls after a write."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from steersman_testing.apiserver.aggregation import ClusterRoleAggregator
from steersman_testing.apiserver.controller_requests import ControllerRequests
from steersman_testing.apiserver.definition_controller import DefinitionController
from steersman_testing.apiserver.garbage_collector import GarbageCollector
from steersman_testing.apiserver.storage import Storage
from steersman_testing.apiserver.webhook_calls import PendingWebhook, WebhookCaller, WouldBlock

RunFunc = Callable[[], None]
R = TypeVar("R")


class SectionRunner(Protocol):
    """Runs one section of a request and returns its result."""

    def __call__(self, part: Callable[[], R]) -> R: ...


def run_section(part: Callable[[], R]) -> R:
    """Run a section without further effects."""
    return part()


@dataclass(slots=True)
class ControllerRunner:
    """Runs the controllers until the storage is stable.

    A step does all work that needs no webhook and raises ``PendingWebhook`` for the rest. The next run of the step
    continues. While one run waits for webhooks, other runs leave such work to it. Otherwise a webhook that writes
    during its call would wait for itself.

    Attributes:
        with_controller_manager: whether controllers of the controller manager run.
    """

    storage: Storage
    webhook_caller: WebhookCaller
    definition_controller: DefinitionController
    requests: ControllerRequests
    with_controller_manager: bool
    cluster_role_aggregator: ClusterRoleAggregator
    garbage_collector: GarbageCollector
    _is_running: bool = False

    def run_controllers_until_stable(self) -> None:
        """Run all controllers until none of them writes.

        Raises:
            PendingWebhook: webhooks must be called.
            ApiError: 501, a webhook call is not implemented.
        """
        last_version = -1
        while last_version != self.storage.version:
            last_version = self.storage.version
            self.definition_controller.reconcile_deletions()
            if self.with_controller_manager:
                self.cluster_role_aggregator.reconcile()
                self.garbage_collector.reconcile()
        self.requests.raise_pending()

    def collect_garbage(self) -> None:
        """Run the garbage collector, and the other controllers if they are enabled."""
        if self.with_controller_manager:
            # Other runs may have left any work to this one.
            self.run_controllers_until_stable()
        else:
            self.garbage_collector.reconcile()
            self.requests.raise_pending()

    async def run(self, step: RunFunc) -> None:
        """Run ``step`` until it is stable.

        If a run is in progress, leave the webhook calls to it.

        Raises:
            ApiError: as ``step``.
        """
        with self._enter() as is_outermost:
            if is_outermost:
                await self.webhook_caller.run(step)
            else:
                _run_without_webhooks(step)

    def run_sync(self, step: RunFunc) -> None:
        """Run ``step`` synchronously.

        Raises:
            WouldBlock: a webhook call would block. Its objects stay unchanged.
        """
        with self._enter() as is_outermost:
            if is_outermost:
                self.webhook_caller.run_sync(step)
            else:
                _run_without_webhooks(step)

    def try_run_sync(self) -> None:
        """Run the controllers and leave blocking webhook calls to the next run."""
        with suppress(WouldBlock):
            self.run_sync(self.run_controllers_until_stable)

    @contextmanager
    def _enter(self) -> Generator[bool]:
        is_outermost, self._is_running = not self._is_running, True
        self.requests.reverted_uids.clear()
        if is_outermost:
            self.requests.webhook_rounds.clear()
        try:
            yield is_outermost
        finally:
            if is_outermost:
                self._is_running = False


def _run_without_webhooks(step: RunFunc) -> None:
    with suppress(PendingWebhook):
        step()
