"""Exploration of the changes that users can make to an object."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steersman.errors import ApiError, SteersmanError
from steersman.meta import Resource
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.exploration_plan import Coverage, ExplorationPlan
from steersman_testing.transitions.hints import Budget, Hints
from steersman_testing.transitions.input_model import InputModel
from steersman_testing.transitions.kind_under_test import KindUnderTest
from steersman_testing.transitions.oracles import healthy_conditions, unhealthy_reasons
from steersman_testing.transitions.reference_states import ReferenceStates
from steersman_testing.transitions.shrinking import shrink
from steersman_testing.transitions.spec_changes import ChangeSequence, SpecChange
from steersman_testing.transitions.system_under_test import SystemFactory
from steersman_testing.transitions.trial import ExplorationFailure, Trial


class UnhealthyStart(SteersmanError, RuntimeError):
    """The first object is not healthy, so later observations have no baseline."""


class TransitionFailed(AssertionError):
    """The operator handles a change incorrectly. The text lists the failures.

    Attributes:
        report: report of the exploration.
    """

    def __init__(self, report: ExplorationReport) -> None:
        super().__init__("\n\n".join(str(f) for f in report.failures))
        self.report = report


@dataclass(slots=True)
class ExplorationReport:
    """Result of an exploration.

    Attributes:
        coverage: changes tried per field and round.
        changes: number of changes applied and checked.
        references: number of new objects created for comparison.
        seconds: duration in real time.
        failures: shrunk failures.
    """

    coverage: Coverage
    changes: int = 0
    references: int = 0
    seconds: float = 0.0
    failures: tuple[ExplorationFailure, ...] = ()

    def check(self) -> None:
        """Raise TransitionFailed if there are failures."""
        if self.failures:
            raise TransitionFailed(self)

    def __str__(self) -> str:
        failed = f"{len(self.failures)} failure" + ("" if len(self.failures) == 1 else "s")
        head = f"{self.changes} changes, {self.references} reference objects, {failed}"
        return "\n".join([head, str(self.coverage), *(f"\n{f}" for f in self.failures)])


async def explore(
    kind: type[Resource[Any, Any]] | Mapping[str, Any],
    system_factory: SystemFactory,
    hints: Hints | None = None,
    *,
    seed: int = 0,
    budget: Budget | None = None,
    replay: str = "",
) -> ExplorationReport:
    """Apply generated changes to objects of a kind and check each result.

    Changes come in rounds: set or alter each field, remove it, violate each of its constraints, misspell its name,
    set its bad values, set all other values, recreate the object, change pairs of fields. Random changes of several
    fields follow until the budget is spent. The same seed generates the same changes.

    Args:
        kind: a custom resource type, or the manifest of a CustomResourceDefinition.
        system_factory: creates systems under test: ``in_memory`` or ``on_cluster``.
        hints: knowledge that the schema does not contain.
        seed: seed of all random choices.
        budget: limits of the exploration.
        replay: replay line of a failure. Runs only this sequence.

    Raises:
        UnhealthyStart: if the first object does not become healthy.
        ValueError: if no first object can be generated, a hint names an unknown field or ``replay`` is malformed.

    Source: Gu et al., "Acto: Automatic End-to-End Testing for Operation Correctness of Cloud System Management",
    SOSP 2023.
    """
    model = InputModel(KindUnderTest.from_kind(kind), hints or Hints(), seed)
    exploration = _Exploration(model, system_factory, hints or Hints(), budget or Budget(), seed)
    await exploration.learn_healthy_state()
    if replay:
        await exploration.replay(ChangeSequence.from_replay(replay))
    else:
        await exploration.run()
    report = exploration.report
    report.seconds = exploration.seconds
    return report


class _Exploration:
    def __init__(
        self, model: InputModel, system_factory: SystemFactory, hints: Hints, budget: Budget, seed: int
    ) -> None:
        self._model = model
        self._system_factory = system_factory
        self._hints = hints
        self._budget = budget
        self._plan = ExplorationPlan(model, seed)
        self._start: JsonObject = model.initial_document()
        self._references = ReferenceStates(system_factory, hints, {})
        self._seen: set[tuple[object, ...]] = set()
        self._started = time.monotonic()
        self.report = ExplorationReport(self._plan.coverage)

    async def learn_healthy_state(self) -> None:
        """Record the conditions of a healthy object from a first object."""
        try:
            first = (await self._references.get(self._start)).observation
        except ApiError:
            # The first trial reports the error.
            return
        if first.crashed or not first.settled:
            return
        reasons = unhealthy_reasons(first, self._hints)
        if reasons:
            raise UnhealthyStart(
                f"{ChangeSequence(self._start)}\nthis object is not healthy: set Hints(start=…). {'; '.join(reasons)}"
            )
        self._references = ReferenceStates(
            self._system_factory, self._hints, healthy_conditions(first.object, self._hints)
        )

    @property
    def seconds(self) -> float:
        """Real time since the start."""
        return time.monotonic() - self._started

    async def run(self) -> None:
        """Run trials until the budget is spent or no change remains."""
        while self._has_budget():
            before = self.report.changes
            failure = await self._run_trial()
            if failure is not None:
                await self._record_failure(failure)
            self.report.references = self._references.created
            if self.report.changes == before:
                return

    def _has_budget(self) -> bool:
        budget, report = self._budget, self.report
        in_time = budget.seconds is None or self.seconds < budget.seconds
        return in_time and report.changes < budget.changes and len(report.failures) < budget.failures

    async def _run_trial(self) -> ExplorationFailure | None:
        async with self._system_factory() as system:
            trial = Trial(system, self._references, self._hints, self._start)
            if failure := await trial.create():
                return failure
            for _ in range(self._budget.changes_per_trial):
                change = self._plan.next(trial.document) if self._has_budget() else None
                if change is None:
                    break
                self.report.changes += 1
                if failure := await trial.apply_change(change):
                    return failure
                if trial.in_error:
                    self.report.changes += 1
                    if failure := await trial.apply_change(
                        self._model.rollback_change(trial.document, trial.last_good)
                    ):
                        return failure
            return await trial.apply_change(SpecChange("again"))

    async def _record_failure(self, failure: ExplorationFailure) -> None:
        """Shrink a failure and record it, unless its signature is known."""
        if failure.finding.signature in self._seen:
            return
        self._seen.add(failure.finding.signature)
        shrunk = await shrink(
            failure, self._replay, self._model, initial=self._start, remaining_runs=self._budget.shrink_runs
        )
        self._seen.add(shrunk.finding.signature)
        self.report.failures = (*self.report.failures, shrunk)

    async def _replay(self, sequence: ChangeSequence) -> ExplorationFailure | None:
        async with self._system_factory() as system:
            trial = Trial(system, self._references, self._hints, sequence.start)
            if failure := await trial.create():
                return failure
            for change in sequence.changes:
                if failure := await trial.apply_change(change):
                    return failure
            return None

    async def replay(self, sequence: ChangeSequence) -> None:
        """Replay one sequence."""
        failure = await self._replay(sequence)
        self.report.changes = len(sequence.changes)
        self.report.references = self._references.created
        if failure is not None:
            self.report.failures = (failure,)
