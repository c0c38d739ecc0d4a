"""Explores what users can do to objects of a kind."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steersman.errors import ApiError, SteersmanError
from steersman.meta import Resource
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.changes import Change, Story
from steersman_testing.transitions.drafts import Drafts
from steersman_testing.transitions.hints import Budget, Hints
from steersman_testing.transitions.oracles import ailments, healthy
from steersman_testing.transitions.plan import Coverage, Plan
from steersman_testing.transitions.references import References
from steersman_testing.transitions.shrinking import smallest
from steersman_testing.transitions.subject import Subject
from steersman_testing.transitions.system import Systems
from steersman_testing.transitions.walk import Failure, Walk


class Unwell(SteersmanError, RuntimeError):
    """The first object is not well, so nothing can be learnt from what comes after it."""


class TransitionFailed(AssertionError):
    """The operator does not follow a change as it should; the text is the story.

    Attributes:
        report: of the whole exploration.
    """

    def __init__(self, report: Report) -> None:
        super().__init__("\n\n".join(str(f) for f in report.failures))
        self.report = report


@dataclass(slots=True)
class Report:
    """What came of an exploration.

    Attributes:
        coverage: what was tried of what could be.
        changes: how many changes were made and judged.
        references: how many new objects were made to compare with.
        seconds: real time that it took.
        failures: what is wrong, each as small as it got.
    """

    coverage: Coverage
    changes: int = 0
    references: int = 0
    seconds: float = 0.0
    failures: tuple[Failure, ...] = ()

    def check(self) -> None:
        """Raises TransitionFailed where there are failures."""
        if self.failures:
            raise TransitionFailed(self)

    def __str__(self) -> str:
        failed = f"{len(self.failures)} failure" + ("" if len(self.failures) == 1 else "s")
        head = f"{self.changes} changes, {self.references} new objects to compare with, {failed}"
        return "\n".join([head, str(self.coverage), *(f"\n{f}" for f in self.failures)])


async def explore(
    kind: type[Resource[Any, Any]] | Mapping[str, Any],
    systems: Systems,
    hints: Hints | None = None,
    *,
    seed: int = 0,
    budget: Budget | None = None,
    replay: str = "",
) -> Report:
    """Changes objects of ``kind`` in all the ways that users do, and judges what the operator makes of each change.

    The changes come in rounds: each field set or altered, removed, each of its constraints violated, its name
    misspelt, its bad values, all its other values, deletion and creation, pairs of fields, and then any number of
    fields at random until the budget is spent. The same seed gives the same changes.

    Args:
        kind: a custom resource type, or the manifest of a CustomResourceDefinition.
        systems: where it runs: ``in_memory`` or ``on_cluster``.
        hints: what the schema does not say.
        seed: of all that is random.
        budget: when to stop.
        replay: the line of a failure, to do just that again.

    Raises:
        Unwell: the first object does not become healthy.
        ValueError: no first object can be made, a hint names no field, or ``replay`` is none.

    Source: Gu et al., "Acto: Automatic End-to-End Testing for Operation Correctness of Cloud System Management",
    SOSP 2023.
    """
    drafts = Drafts(Subject.of(kind), hints or Hints(), seed)
    exploration = _Exploration(drafts, systems, hints or Hints(), budget or Budget(), seed)
    await exploration.prepare()
    if replay:
        await exploration.replay(Story.of(replay))
    else:
        await exploration.run()
    report = exploration.report
    report.seconds = exploration.seconds
    return report


class _Exploration:
    def __init__(self, drafts: Drafts, systems: Systems, hints: Hints, budget: Budget, seed: int) -> None:
        self._drafts = drafts
        self._systems = systems
        self._hints = hints
        self._budget = budget
        self._plan = Plan(drafts, seed)
        self._start: JsonObject = drafts.start()
        self._references = References(systems, hints, {})
        self._seen: set[tuple[object, ...]] = set()
        self._begun = time.monotonic()
        self.report = Report(self._plan.coverage)

    async def prepare(self) -> None:
        """Learns from a first object what healthy looks like."""
        try:
            first = (await self._references.of(self._start)).observation
        except ApiError:
            # The first walk tells.
            return
        if first.crashed or not first.settled:
            return
        wrong = ailments(first, self._hints)
        if wrong:
            raise Unwell(f"{Story(self._start)}\nthis object is not well, give Hints(start=…): {'; '.join(wrong)}")
        self._references = References(self._systems, self._hints, healthy(first.object, self._hints))

    @property
    def seconds(self) -> float:
        """Real time since it began."""
        return time.monotonic() - self._begun

    async def run(self) -> None:
        """Walks until the budget is spent or there is nothing left to do."""
        while self._left():
            before = self.report.changes
            failure = await self._walk()
            if failure is not None:
                await self._keep(failure)
            self.report.references = self._references.made
            if self.report.changes == before:
                return

    def _left(self) -> bool:
        budget, report = self._budget, self.report
        in_time = budget.seconds is None or self.seconds < budget.seconds
        return in_time and report.changes < budget.changes and len(report.failures) < budget.failures

    async def _walk(self) -> Failure | None:
        async with self._systems() as system:
            walk = Walk(system, self._references, self._hints, self._start)
            if failure := await walk.begin():
                return failure
            for _ in range(self._budget.walk):
                change = self._plan.next(walk.document) if self._left() else None
                if change is None:
                    break
                self.report.changes += 1
                if failure := await walk.step(change):
                    return failure
                if walk.in_error:
                    self.report.changes += 1
                    if failure := await walk.step(self._drafts.way_back(walk.document, walk.good)):
                        return failure
            return await walk.step(Change("again"))

    async def _keep(self, failure: Failure) -> None:
        """Makes a new failure small; the same one again is passed over."""
        if failure.finding.signature in self._seen:
            return
        self._seen.add(failure.finding.signature)
        small = await smallest(failure, self._play, self._drafts, first=self._start, runs=self._budget.shrinking)
        self._seen.add(small.finding.signature)
        self.report.failures = (*self.report.failures, small)

    async def _play(self, story: Story) -> Failure | None:
        async with self._systems() as system:
            walk = Walk(system, self._references, self._hints, story.start)
            if failure := await walk.begin():
                return failure
            for change in story.changes:
                if failure := await walk.step(change):
                    return failure
            return None

    async def replay(self, story: Story) -> None:
        """Does what ``story`` tells."""
        failure = await self._play(story)
        self.report.changes = len(story.changes)
        self.report.references = self._references.made
        if failure is not None:
            self.report.failures = (failure,)
