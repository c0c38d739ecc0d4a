"""Shrinking of failures: fewer changes, simpler values, a smaller first object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

from steersman_testing.apiserver.values import MISSING, JsonObject
from steersman_testing.transitions.document_paths import get_value, with_value
from steersman_testing.transitions.input_model import InputModel
from steersman_testing.transitions.spec_changes import (
    REJECTED_KINDS,
    ChangeSequence,
    FieldEdit,
    SpecChange,
    leaf_paths,
)
from steersman_testing.transitions.trial import ExplorationFailure

ReplayFunction = Callable[[ChangeSequence], Awaitable["ExplorationFailure | None"]]


async def shrink(
    failure: ExplorationFailure,
    replay: ReplayFunction,
    model: InputModel,
    *,
    initial: JsonObject,
    remaining_runs: int,
) -> ExplorationFailure:
    """Return the smallest failure with the same signature within ``remaining_runs`` runs.

    Args:
        failure: initial failure.
        replay: runs a sequence on a new system.
        model: input model of the kind.
        initial: content of the simplest first object.
        remaining_runs: maximum number of replays.
    """
    tried = {failure.replay}
    smaller: ExplorationFailure | None = failure
    while smaller is not None:
        failure, smaller = smaller, None
        for sequence in _candidates(failure.sequence, model, initial):
            if sequence.replay in tried or not is_feasible(sequence, model):
                continue
            if remaining_runs <= 0:
                return failure
            tried.add(sequence.replay)
            remaining_runs -= 1
            replayed = await replay(sequence)
            if replayed is not None and replayed.finding.signature == failure.finding.signature:
                smaller = replayed
                break
    return failure


def is_feasible(sequence: ChangeSequence, model: InputModel) -> bool:
    """Return True if the API server responds to each change as required."""
    try:
        documents = sequence.documents()
    except ValueError:
        return False
    if model.admission.rejection(None, sequence.start) is not None:
        return False
    for before, change, after in zip(documents, sequence.changes, documents[1:], strict=False):
        if not change.is_applicable(before) or not model.is_feasible(before, change):
            return False
        if change.kind == "rollback" and (before == after or model.admission.rejection(before, after) is not None):
            return False
    return True


def _candidates(sequence: ChangeSequence, model: InputModel, initial: JsonObject) -> Iterator[ChangeSequence]:
    """Yield smaller sequences, the most promising ones first."""
    yield from _shorter_sequences(sequence, initial)
    for position, change in enumerate(sequence.changes):
        for simpler in _simpler_changes(change, model):
            changes = list(sequence.changes)
            changes[position] = simpler
            yield replace(sequence, changes=tuple(changes))
    for path in leaf_paths(sequence.start):
        if len(path) > 1:
            yield replace(sequence, start=with_value(sequence.start, path, MISSING))
        if get_value(initial, path) not in (MISSING, get_value(sequence.start, path)):
            yield replace(sequence, start=with_value(sequence.start, path, get_value(initial, path)))


def _shorter_sequences(sequence: ChangeSequence, initial: JsonObject) -> Iterator[ChangeSequence]:
    documents, changes = sequence.documents(), sequence.changes
    for kept in range(len(changes)):
        # Only the last changes: on the simplest object, and on an object created with the content before them.
        last = changes[len(changes) - kept :]
        yield ChangeSequence(initial, last)
        yield ChangeSequence(documents[len(changes) - kept], last)
    for position in range(len(changes)):
        yield replace(sequence, changes=(*changes[:position], *changes[position + 1 :]))


def _simpler_changes(change: SpecChange, model: InputModel) -> Iterator[SpecChange]:
    if len(change.edits) > 1:
        for position in range(len(change.edits)):
            kept = (*change.edits[:position], *change.edits[position + 1 :])
            kind = "alter" if len(kept) == 1 and change.kind == "several" else change.kind
            yield replace(change, kind=kind, edits=kept, paths=())
    if change.kind in REJECTED_KINDS or change.kind == "bad":
        # Invalid and bad values have no simpler form.
        return
    properties = {p.path: p for p in model.properties}
    for position, edit in enumerate(change.edits):
        prop = properties.get(edit.path)
        if prop is None or edit.value is MISSING:
            continue
        for value in model.valid_values(prop):
            if value.value == edit.value:
                # The following values are not simpler.
                break
            edits = (*change.edits[:position], FieldEdit(edit.path, value.value), *change.edits[position + 1 :])
            yield replace(change, edits=edits, label=value.label if change.kind == "boundary" else "")
    if change.kind == "recreate" and change.edits:
        yield replace(change, edits=())
