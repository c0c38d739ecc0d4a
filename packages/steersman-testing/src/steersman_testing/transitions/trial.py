"""One object on its way: changed, watched, judged after each change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steersman.errors import ApiError
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.hints import Hints
from steersman_testing.transitions.oracles import ErrorState, OracleFinding, check_settled
from steersman_testing.transitions.reference_states import ReferenceState, ReferenceStates
from steersman_testing.transitions.spec_changes import ChangeSequence, SpecChange
from steersman_testing.transitions.system_under_test import Observation, SystemUnderTest

_DIVERGED = "after these changes the state is not that of a new object with the same spec"


@dataclass(frozen=True, slots=True)
class ExplorationFailure:
    """Something that an operator does wrong.

    Attributes:
        story: what was done.
        finding: what is wrong after it.
    """

    sequence: ChangeSequence
    finding: OracleFinding

    @property
    def oracle(self) -> str:
        """Which check failed, such as ``convergence``."""
        return self.finding.oracle

    @property
    def replay(self) -> str:
        """The line for ``explore(…, replay=…)``."""
        return self.sequence.replay

    def __str__(self) -> str:
        lines = [f"{self.finding.oracle}: {self.finding.text}", str(self.sequence)]
        if self.finding.differences:
            within = self.oracle in ("idempotence", "rollback")
            sides = "before / after" if within else "after the changes / new object"
            lines.append(f"differences ({sides}):")
            lines.extend(f"  {d}" for d in self.finding.differences)
        lines.append(f"replay={self.replay!r}")
        return "\n".join(lines)


class Trial:
    """Changes of one object, each judged.

    Args:
        system: on which the object lives; it has none yet.
        references: to compare with.
        hints: what the author knows.
        start: the first content.

    Attributes:
        story: what was done so far.
        document: the content that is wanted now.
        good: the last one that came to a good end.
        in_error: whether the last change ended in an error that its user can see.
    """

    def __init__(self, system: SystemUnderTest, references: ReferenceStates, hints: Hints, start: JsonObject) -> None:
        self._system = system
        self._references = references
        self._hints = hints
        self.sequence = ChangeSequence(start)
        self.document = start
        self.in_error = False
        self.last_good = start
        self._last_good_observation = self._last_observation = Observation()

    async def create(self) -> ExplorationFailure | None:
        """Creates the object."""
        try:
            await self._system.apply(self.document)
        except ApiError as error:
            return self._failure(OracleFinding("refusal", f"the API server refuses what the schema allows: {error}"))
        self._last_good_observation = self._last_observation = await self._system.settle()
        found = self._references.error_state(self._last_observation)
        return self._failure(next(check_settled(self._last_observation, found), None))

    async def apply_change(self, change: SpecChange) -> ExplorationFailure | None:
        """Does ``change``, waits until all is quiet, and judges."""
        self.sequence = self.sequence.with_change(change)
        match change.kind:
            case "invalid":
                finding = await self._expect_rejection(change)
            case "misspell":
                finding = await self._check_misspelling(change)
            case "again":
                finding = await self._check_idempotence()
            case "rollback":
                finding = await self._roll_back()
            case "recreate":
                finding = await self._recreate(change)
            case _:
                finding = await self._apply(change)
        return self._failure(finding)

    def _failure(self, finding: OracleFinding | None) -> ExplorationFailure | None:
        return None if finding is None else ExplorationFailure(self.sequence, finding)

    # What the API server must refuse

    async def _expect_rejection(self, change: SpecChange) -> OracleFinding | None:
        try:
            await self._system.apply(change.apply_to(self.document))
        except ApiError as error:
            return None if str(error) else OracleFinding("silence", "the API server refuses without a word")
        return OracleFinding("refusal", f"the API server takes what the schema forbids: {change.label}")

    async def _check_misspelling(self, change: SpecChange) -> OracleFinding | None:
        name = str(change.edits[-1].path[-1])
        try:
            await self._system.apply(change.apply_to(self.document))
        except ApiError as error:
            if name not in str(error):
                return OracleFinding("silence", f"the refusal of the misspelt field does not name it: {error}")
        else:
            return OracleFinding("refusal", f"strict validation takes the misspelt field {name}")
        await self._system.apply(change.apply_to(self.document), "Ignore")
        after = await self._system.settle()
        differing = self._references.relevant_differences(self._last_observation.state, after.state)
        text = "a misspelt field, which is dropped, makes a difference"
        return OracleFinding("convergence", text, differing) if differing else None

    # What it must take

    async def _apply(self, change: SpecChange) -> OracleFinding | None:
        document = change.apply_to(self.document)
        try:
            await self._system.apply(document)
        except ApiError as error:
            if change.kind == "bad":
                return None
            return OracleFinding("refusal", f"the API server refuses what the schema allows: {error}")
        return await self._check_outcome(document, bad=change.kind == "bad")

    async def _recreate(self, change: SpecChange) -> OracleFinding | None:
        document = change.apply_to(self.document)
        await self._system.delete()
        after_deletion = await self._system.settle()
        if after_deletion.crashed:
            return OracleFinding("crash", f"the operator's process ended: {after_deletion.crashed}")
        if after_deletion.object is not None:
            held = ", ".join(after_deletion.object["metadata"].get("finalizers", ()))
            return OracleFinding("deletion", f"the object is deleted and does not go: finalizers {held or 'none'}")
        try:
            await self._system.apply(document)
        except ApiError as error:
            return OracleFinding("refusal", f"the API server refuses what the schema allows: {error}")
        return await self._check_outcome(document)

    async def _check_outcome(self, document: JsonObject, *, bad: bool = False) -> OracleFinding | None:
        """Waits for what becomes of ``document``, which is stored now, and judges."""
        self.document = document
        after, errors = await self._settle()
        if finding := next(check_settled(after, errors), None):
            return finding
        self.in_error = bad or errors.failed
        if bad:
            text = "a spec that cannot work is met with silence: no condition tells, and no Warning Event"
            return None if errors.is_visible else OracleFinding("silence", text)
        return await self._compare_with_reference(after, errors)

    async def _compare_with_reference(self, after: Observation, errors: ErrorState) -> OracleFinding | None:
        """Judges by a new object of the same spec."""
        try:
            reference = await self._references.get(self.document)
        except ApiError as error:
            return OracleFinding("refusal", f"the API server refuses a new object with the same spec: {error}")
        if (
            finding := next(check_settled(reference.observation, reference.error_state), None)
            or reference.idempotence_finding
        ):
            # What led here does not matter to it.
            self.sequence = ChangeSequence(
                self.document, () if finding is not reference.idempotence_finding else (SpecChange("again"),)
            )
            return finding
        if reference.error_state.failed or self.in_error:
            return self._check_failed(reference, errors)
        differing = await self._references.differences_from(after.state, reference.observation.state, self.document)
        if differing:
            return OracleFinding("convergence", _DIVERGED, differing)
        self.last_good, self._last_good_observation = self.document, after
        return None

    def _check_failed(self, reference: ReferenceState, errors: ErrorState) -> OracleFinding | None:
        if reference.error_state.failed and self.in_error:
            # Nobody can follow this spec, and it shows.
            self._mark_bad()
            return None
        if reference.error_state.failed:
            reasons = ", ".join(reference.error_state.reasons or reference.error_state.warnings)
            text = f"a new object with the same spec ends in an error ({reasons}), this one does not"
            return OracleFinding("convergence", text)
        if set(errors.reasons) <= set(self._hints.rejection_reasons) and errors.reasons:
            self._mark_bad()
            return None
        reasons = ", ".join(errors.reasons or errors.warnings)
        text = f"this ends in an error ({reasons}), a new object with the same spec does not"
        return OracleFinding("convergence", f"{text}; a refusal on purpose is named in Hints.refusals")

    def _mark_bad(self) -> None:
        """The last change led to a spec that is not to be gone back to."""
        *before, last = self.sequence.changes
        if last.kind != "recreate":
            self.sequence = replace(self.sequence, changes=(*before, replace(last, kind="bad")))

    async def _roll_back(self) -> OracleFinding | None:
        try:
            await self._system.apply(self.last_good)
        except ApiError as error:
            return OracleFinding(
                "rollback", f"there is no way back, the API server refuses the last good spec: {error}"
            )
        self.document = self.last_good
        after, errors = await self._settle()
        self.in_error = errors.failed
        if finding := next(check_settled(after, errors), None):
            return finding
        if self.in_error:
            reasons = ", ".join(errors.reasons or errors.warnings)
            return OracleFinding("rollback", f"back at the last good spec the error stays: {reasons}")
        differing = await self._references.differences_from(
            self._last_good_observation.state, after.state, self.document
        )
        if differing:
            return OracleFinding("rollback", "back at the last good spec the state is not what it was", differing)
        return None

    async def _check_idempotence(self) -> OracleFinding | None:
        return await self._references.check_idempotence(self._system, self.document, self._last_observation)

    async def _settle(self) -> tuple[Observation, ErrorState]:
        self._last_observation = await self._system.settle()
        return self._last_observation, self._references.error_state(self._last_observation)
