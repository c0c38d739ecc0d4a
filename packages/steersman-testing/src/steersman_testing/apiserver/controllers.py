"""What follows from a write: definitions, aggregated roles and deletions are carried through, and webhooks asked."""

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
    """Runs a part of what a request takes, and returns what that returns."""

    def __call__(self, part: Callable[[], R]) -> R: ...


def run_section(part: Callable[[], R]) -> R:
    """The plain ``Runner``."""
    return part()


@dataclass(slots=True)
class ControllerRunner:
    """Runs the controllers until nothing more follows, and all the webhooks are asked that this needs.

    A step does what can be done, and raises ``NeedsCall`` for the rest; run again, it goes on. Who comes while
    another waits for webhooks does what needs none, and leaves the rest to the other: a webhook that writes while it
    is asked would wait for itself.

    Attributes:
        whole: whether there is a controller manager at all.
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
        """All that can be done for now. Raises as ``ControllerRequests.check``."""
        last_version = -1
        while last_version != self.storage.version:
            last_version = self.storage.version
            self.definition_controller.reconcile_deletions()
            if self.with_controller_manager:
                self.cluster_role_aggregator.reconcile()
                self.garbage_collector.reconcile()
        self.requests.raise_pending()

    def collect_garbage(self) -> None:
        """``step``, with the garbage collector where nobody else runs it, too."""
        if self.with_controller_manager:
            # All of it: others may leave anything to who waits.
            self.run_controllers_until_stable()
        else:
            self.garbage_collector.reconcile()
            self.requests.raise_pending()

    async def run(self, step: RunFunc) -> None:
        """Returns when nothing follows any more, or another goes on. Raises what ``step`` raises."""
        with self._enter() as is_outermost:
            if is_outermost:
                await self.webhook_caller.run(step)
            else:
                _run_without_webhooks(step)

    def run_sync(self, step: RunFunc) -> None:
        """``complete`` where nothing can wait.

        Raises:
            CannotWait: a webhook has to be waited for. What it is asked about stays as it is.
        """
        with self._enter() as is_outermost:
            if is_outermost:
                self.webhook_caller.run_sync(step)
            else:
                _run_without_webhooks(step)

    def try_run_sync(self) -> None:
        """Leaves what has to be waited for to the next who can wait. Raises as ``step``."""
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
