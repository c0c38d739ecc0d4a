"""One object on its way: changed, watched, judged after each change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steersman.errors import ApiError
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.changes import Change, Story
from steersman_testing.transitions.hints import Hints
from steersman_testing.transitions.oracles import Finding, Signs, at_rest
from steersman_testing.transitions.references import Reference, References
from steersman_testing.transitions.system import Observation, System

_UNLIKE = "after these changes the state is not that of a new object with the same spec"


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that an operator does wrong.

    Attributes:
        story: what was done.
        finding: what is wrong after it.
    """

    story: Story
    finding: Finding

    @property
    def oracle(self) -> str:
        """Which check failed, such as ``convergence``."""
        return self.finding.oracle

    @property
    def replay(self) -> str:
        """The line for ``explore(…, replay=…)``."""
        return self.story.replay

    def __str__(self) -> str:
        lines = [f"{self.finding.oracle}: {self.finding.text}", str(self.story)]
        if self.finding.differences:
            within = self.oracle in ("idempotence", "rollback")
            sides = "before / after" if within else "after the changes / new object"
            lines.append(f"differences ({sides}):")
            lines.extend(f"  {d}" for d in self.finding.differences)
        lines.append(f"replay={self.replay!r}")
        return "\n".join(lines)


class Walk:
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

    def __init__(self, system: System, references: References, hints: Hints, start: JsonObject) -> None:
        self._system = system
        self._references = references
        self._hints = hints
        self.story = Story(start)
        self.document = start
        self.in_error = False
        self.good = start
        self._well = self._last = Observation()

    async def begin(self) -> Failure | None:
        """Creates the object."""
        try:
            await self._system.apply(self.document)
        except ApiError as error:
            return self._failure(Finding("refusal", f"the API server refuses what the schema allows: {error}"))
        self._well = self._last = await self._system.settle()
        found = self._references.signs(self._last)
        return self._failure(next(at_rest(self._last, found), None))

    async def step(self, change: Change) -> Failure | None:
        """Does ``change``, waits until all is quiet, and judges."""
        self.story = self.story.then(change)
        match change.kind:
            case "invalid":
                finding = await self._refused(change)
            case "misspell":
                finding = await self._misspelt(change)
            case "again":
                finding = await self._again()
            case "rollback":
                finding = await self._back()
            case "recreate":
                finding = await self._recreated(change)
            case _:
                finding = await self._taken(change)
        return self._failure(finding)

    def _failure(self, finding: Finding | None) -> Failure | None:
        return None if finding is None else Failure(self.story, finding)

    # What the API server must refuse

    async def _refused(self, change: Change) -> Finding | None:
        try:
            await self._system.apply(change.applied_to(self.document))
        except ApiError as error:
            return None if str(error) else Finding("silence", "the API server refuses without a word")
        return Finding("refusal", f"the API server takes what the schema forbids: {change.label}")

    async def _misspelt(self, change: Change) -> Finding | None:
        name = str(change.edits[-1].path[-1])
        try:
            await self._system.apply(change.applied_to(self.document))
        except ApiError as error:
            if name not in str(error):
                return Finding("silence", f"the refusal of the misspelt field does not name it: {error}")
        else:
            return Finding("refusal", f"strict validation takes the misspelt field {name}")
        await self._system.apply(change.applied_to(self.document), "Ignore")
        after = await self._system.settle()
        unlike = self._references.unlike(self._last.state, after.state)
        text = "a misspelt field, which is dropped, makes a difference"
        return Finding("convergence", text, unlike) if unlike else None

    # What it must take

    async def _taken(self, change: Change) -> Finding | None:
        document = change.applied_to(self.document)
        try:
            await self._system.apply(document)
        except ApiError as error:
            if change.kind == "bad":
                return None
            return Finding("refusal", f"the API server refuses what the schema allows: {error}")
        return await self._followed(document, bad=change.kind == "bad")

    async def _recreated(self, change: Change) -> Finding | None:
        document = change.applied_to(self.document)
        await self._system.delete()
        gone = await self._system.settle()
        if gone.crashed:
            return Finding("crash", f"the operator's process ended: {gone.crashed}")
        if gone.object is not None:
            held = ", ".join(gone.object["metadata"].get("finalizers", ()))
            return Finding("deletion", f"the object is deleted and does not go: finalizers {held or 'none'}")
        try:
            await self._system.apply(document)
        except ApiError as error:
            return Finding("refusal", f"the API server refuses what the schema allows: {error}")
        return await self._followed(document)

    async def _followed(self, document: JsonObject, *, bad: bool = False) -> Finding | None:
        """Waits for what becomes of ``document``, which is stored now, and judges."""
        self.document = document
        after, found = await self._rest()
        if wrong := next(at_rest(after, found), None):
            return wrong
        self.in_error = bad or found.failed
        if bad:
            text = "a spec that cannot work is met with silence: no condition tells, and no Warning Event"
            return None if found.visible else Finding("silence", text)
        return await self._compared(after, found)

    async def _compared(self, after: Observation, found: Signs) -> Finding | None:
        """Judges by a new object of the same spec."""
        try:
            fresh = await self._references.of(self.document)
        except ApiError as error:
            return Finding("refusal", f"the API server refuses a new object with the same spec: {error}")
        if wrong := next(at_rest(fresh.observation, fresh.signs), None) or fresh.again:
            # What led here does not matter to it.
            self.story = Story(self.document, () if wrong is not fresh.again else (Change("again"),))
            return wrong
        if fresh.signs.failed or self.in_error:
            return self._one_failed(fresh, found)
        unlike = await self._references.differences(after.state, fresh.observation.state, self.document)
        if unlike:
            return Finding("convergence", _UNLIKE, unlike)
        self.good, self._well = self.document, after
        return None

    def _one_failed(self, fresh: Reference, found: Signs) -> Finding | None:
        if fresh.signs.failed and self.in_error:
            # Nobody can follow this spec, and it shows.
            self._call_bad()
            return None
        if fresh.signs.failed:
            reasons = ", ".join(fresh.signs.reasons or fresh.signs.warnings)
            text = f"a new object with the same spec ends in an error ({reasons}), this one does not"
            return Finding("convergence", text)
        if set(found.reasons) <= set(self._hints.refusals) and found.reasons:
            self._call_bad()
            return None
        reasons = ", ".join(found.reasons or found.warnings)
        text = f"this ends in an error ({reasons}), a new object with the same spec does not"
        return Finding("convergence", f"{text}; a refusal on purpose is named in Hints.refusals")

    def _call_bad(self) -> None:
        """The last change led to a spec that is not to be gone back to."""
        *before, last = self.story.changes
        if last.kind != "recreate":
            self.story = replace(self.story, changes=(*before, replace(last, kind="bad")))

    async def _back(self) -> Finding | None:
        try:
            await self._system.apply(self.good)
        except ApiError as error:
            return Finding("rollback", f"there is no way back, the API server refuses the last good spec: {error}")
        self.document = self.good
        after, found = await self._rest()
        self.in_error = found.failed
        if wrong := next(at_rest(after, found), None):
            return wrong
        if self.in_error:
            reasons = ", ".join(found.reasons or found.warnings)
            return Finding("rollback", f"back at the last good spec the error stays: {reasons}")
        unlike = await self._references.differences(self._well.state, after.state, self.document)
        if unlike:
            return Finding("rollback", "back at the last good spec the state is not what it was", unlike)
        return None

    async def _again(self) -> Finding | None:
        return await self._references.again(self._system, self.document, self._last)

    async def _rest(self) -> tuple[Observation, Signs]:
        self._last = await self._system.settle()
        return self._last, self._references.signs(self._last)
