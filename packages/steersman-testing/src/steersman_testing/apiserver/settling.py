"""What follows from a write: definitions, aggregated roles and deletions are carried through, and webhooks asked."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from steersman_testing.apiserver.aggregation import Aggregation
from steersman_testing.apiserver.callouts import Callouts, CannotWait, NeedsCall
from steersman_testing.apiserver.collector import Collector
from steersman_testing.apiserver.controller_requests import ControllerRequests
from steersman_testing.apiserver.definitions.controller import DefinitionController
from steersman_testing.apiserver.storage import Storage

Step = Callable[[], None]
R = TypeVar("R")


class Runner(Protocol):
    """Runs a part of what a request takes, and returns what that returns."""

    def __call__(self, part: Callable[[], R]) -> R: ...


def run(part: Callable[[], R]) -> R:
    """The plain ``Runner``."""
    return part()


@dataclass(slots=True)
class Settling:
    """Runs the controllers until nothing more follows, and all the webhooks are asked that this needs.

    A step does what can be done, and raises ``NeedsCall`` for the rest; run again, it goes on. Who comes while
    another waits for webhooks does what needs none, and leaves the rest to the other: a webhook that writes while it
    is asked would wait for itself.

    Attributes:
        whole: whether there is a controller manager at all.
    """

    storage: Storage
    callouts: Callouts
    definitions: DefinitionController
    requests: ControllerRequests
    whole: bool
    aggregation: Aggregation
    collector: Collector
    _busy: bool = False

    def step(self) -> None:
        """All that can be done for now. Raises as ``ControllerRequests.check``."""
        before = -1
        while before != self.storage.version:
            before = self.storage.version
            self.definitions.settle()
            if self.whole:
                self.aggregation.settle()
                self.collector.settle()
        self.requests.check()

    def collect(self) -> None:
        """``step``, with the garbage collector where nobody else runs it, too."""
        if self.whole:
            # All of it: others may leave anything to who waits.
            self.step()
        else:
            self.collector.settle()
            self.requests.check()

    async def complete(self, step: Step) -> None:
        """Returns when nothing follows any more, or another goes on. Raises what ``step`` raises."""
        with self._begun() as first:
            if first:
                await self.callouts.complete(step)
            else:
                _once(step)

    def finish(self, step: Step) -> None:
        """``complete`` where nothing can wait.

        Raises:
            CannotWait: a webhook has to be waited for. What it is asked about stays as it is.
        """
        with self._begun() as first:
            if first:
                self.callouts.finish(step)
            else:
                _once(step)

    def try_to_finish(self) -> None:
        """Leaves what has to be waited for to the next who can wait. Raises as ``step``."""
        with suppress(CannotWait):
            self.finish(self.step)

    @contextmanager
    def _begun(self) -> Generator[bool]:
        first, self._busy = not self._busy, True
        self.requests.resisting.clear()
        if first:
            self.requests.asked.clear()
        try:
            yield first
        finally:
            if first:
                self._busy = False


def _once(step: Step) -> None:
    with suppress(NeedsCall):
        step()
