"""Trial: changes of one object, each checked by oracles."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steersman.errors import ApiError
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.hints import Hints
from steersman_testing.transitions.oracles import ErrorState, OracleFinding, check_settled
from steersman_testing.transitions.reference_states import ReferenceState, ReferenceStates
from steersman_testing.transitions.spec_changes import ChangeSequence, SpecChange
from steersman_testing.transitions.system_under_test import Observation, SystemUnderTest

_DIVERGED = "the state differs from that of a new object with the same spec"


@dataclass(frozen=True, slots=True)
class ExplorationFailure:
    """A change that the operator handles incorrectly.

    Attributes:
        sequence: the object and its changes.
        finding: finding of an oracle after the last change.
    """

    sequence: ChangeSequence
    finding: OracleFinding

    @property
    def oracle(self) -> str:
        """Name of the oracle, such as ``convergence``."""
        return self.finding.oracle

    @property
    def replay(self) -> str:
        """Value for ``explore(…, replay=…)``."""
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
    """Changes of one object, each checked.

    Args:
        system: system under test, without an object.
        references: reference states for comparison.
        hints: hints of the author.
        start: content of the new object.

    Attributes:
        sequence: changes so far.
        document: desired content.
        last_good: last content that settled without an error.
        in_error: whether the last change ended in a visible error.
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
            return self._failure(
                OracleFinding("refusal", f"the API server rejects a value that the schema allows: {error}")
            )
        self._last_good_observation = self._last_observation = await self._system.settle()
        found = self._references.error_state(self._last_observation)
        return self._failure(next(check_settled(self._last_observation, found), None))

    async def apply_change(self, change: SpecChange) -> ExplorationFailure | None:
        """Apply ``change``, wait until the system is settled, and check it."""
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

    # Changes that the API server must reject

    async def _expect_rejection(self, change: SpecChange) -> OracleFinding | None:
        try:
            await self._system.apply(change.apply_to(self.document))
        except ApiError as error:
            return (
                None
                if str(error)
                else OracleFinding("silence", "the API server rejects the change without a message")
            )
        return OracleFinding("refusal", f"the API server accepts a value that the schema forbids: {change.label}")

    async def _check_misspelling(self, change: SpecChange) -> OracleFinding | None:
        name = str(change.edits[-1].path[-1])
        try:
            await self._system.apply(change.apply_to(self.document))
        except ApiError as error:
            if name not in str(error):
                return OracleFinding("silence", f"the error message does not name the misspelt field: {error}")
        else:
            return OracleFinding("refusal", f"strict validation accepts the misspelt field {name}")
        await self._system.apply(change.apply_to(self.document), "Ignore")
        after = await self._system.settle()
        differing = self._references.relevant_differences(self._last_observation.state, after.state)
        text = "a misspelt field, which is pruned, changes the state"
        return OracleFinding("convergence", text, differing) if differing else None

    # Changes that the API server must accept

    async def _apply(self, change: SpecChange) -> OracleFinding | None:
        document = change.apply_to(self.document)
        try:
            await self._system.apply(document)
        except ApiError as error:
            if change.kind == "bad":
                return None
            return OracleFinding("refusal", f"the API server rejects a value that the schema allows: {error}")
        return await self._check_outcome(document, bad=change.kind == "bad")

    async def _recreate(self, change: SpecChange) -> OracleFinding | None:
        document = change.apply_to(self.document)
        await self._system.delete()
        after_deletion = await self._system.settle()
        if after_deletion.crashed:
            return OracleFinding("crash", f"the operator process exited: {after_deletion.crashed}")
        if after_deletion.object is not None:
            held = ", ".join(after_deletion.object["metadata"].get("finalizers", ()))
            return OracleFinding("deletion", f"the object remains after its deletion: finalizers {held or 'none'}")
        try:
            await self._system.apply(document)
        except ApiError as error:
            return OracleFinding("refusal", f"the API server rejects a value that the schema allows: {error}")
        return await self._check_outcome(document)

    async def _check_outcome(self, document: JsonObject, *, bad: bool = False) -> OracleFinding | None:
        """Wait until the system is settled with ``document``, and check it."""
        self.document = document
        after, errors = await self._settle()
        if finding := next(check_settled(after, errors), None):
            return finding
        self.in_error = bad or errors.failed
        if bad:
            text = "a spec that cannot work is not reported: no condition and no Warning Event"
            return None if errors.is_visible else OracleFinding("silence", text)
        return await self._compare_with_reference(after, errors)

    async def _compare_with_reference(self, after: Observation, errors: ErrorState) -> OracleFinding | None:
        """Compare the state with that of the reference object."""
        try:
            reference = await self._references.get(self.document)
        except ApiError as error:
            return OracleFinding("refusal", f"the API server rejects a new object with the same spec: {error}")
        if (
            finding := next(check_settled(reference.observation, reference.error_state), None)
            or reference.idempotence_finding
        ):
            # The previous changes are irrelevant to this finding.
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
            # A new object fails in the same way, and the error is visible.
            self._mark_bad()
            return None
        if reference.error_state.failed:
            reasons = ", ".join(reference.error_state.reasons or reference.error_state.warnings)
            text = f"a new object with the same spec ends in an error ({reasons}), but the changed object does not"
            return OracleFinding("convergence", text)
        if set(errors.reasons) <= set(self._hints.rejection_reasons) and errors.reasons:
            self._mark_bad()
            return None
        reasons = ", ".join(errors.reasons or errors.warnings)
        text = f"the changed object ends in an error ({reasons}), but a new object with the same spec does not"
        return OracleFinding("convergence", f"{text}. Add an intended rejection to Hints.rejection_reasons")

    def _mark_bad(self) -> None:
        """Mark the last change as bad, which excludes it from rollbacks."""
        *before, last = self.sequence.changes
        if last.kind != "recreate":
            self.sequence = replace(self.sequence, changes=(*before, replace(last, kind="bad")))

    async def _roll_back(self) -> OracleFinding | None:
        try:
            await self._system.apply(self.last_good)
        except ApiError as error:
            return OracleFinding("rollback", f"the API server rejects the last good spec: {error}")
        self.document = self.last_good
        after, errors = await self._settle()
        self.in_error = errors.failed
        if finding := next(check_settled(after, errors), None):
            return finding
        if self.in_error:
            reasons = ", ".join(errors.reasons or errors.warnings)
            return OracleFinding("rollback", f"the error remains after a rollback to the last good spec: {reasons}")
        differing = await self._references.differences_from(
            self._last_good_observation.state, after.state, self.document
        )
        if differing:
            return OracleFinding("rollback", "the state differs after a rollback to the last good spec", differing)
        return None

    async def _check_idempotence(self) -> OracleFinding | None:
        return await self._references.check_idempotence(self._system, self.document, self._last_observation)

    async def _settle(self) -> tuple[Observation, ErrorState]:
        self._last_observation = await self._system.settle()
        return self._last_observation, self._references.error_state(self._last_observation)
