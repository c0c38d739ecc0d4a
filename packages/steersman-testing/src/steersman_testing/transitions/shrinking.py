"""Makes a failure as small as it gets: the fewest changes, the simplest values, the least first object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

from steersman_testing.apiserver.values import MISSING, JsonObject
from steersman_testing.transitions.changes import REFUSED, Change, Edit, Story, leaves_of
from steersman_testing.transitions.drafts import Drafts
from steersman_testing.transitions.paths import get, with_value
from steersman_testing.transitions.walk import Failure

Play = Callable[[Story], Awaitable["Failure | None"]]


async def smallest(failure: Failure, play: Play, drafts: Drafts, *, first: JsonObject, runs: int) -> Failure:
    """The smallest failure of the same kind that was found in ``runs`` runs.

    Args:
        failure: to begin with.
        play: plays a story from the beginning.
        drafts: of the kind.
        first: the content of the simplest first object.
        runs: how many stories may be played.
    """
    tried = {failure.replay}
    found: Failure | None = failure
    while found is not None:
        failure, found = found, None
        for story in _smaller(failure.story, drafts, first):
            if story.replay in tried or not is_possible(story, drafts):
                continue
            if runs <= 0:
                return failure
            tried.add(story.replay)
            runs -= 1
            played = await play(story)
            if played is not None and played.finding.signature == failure.finding.signature:
                found = played
                break
    return failure


def is_possible(story: Story, drafts: Drafts) -> bool:
    """Whether the API server does with each change what its kind says."""
    try:
        documents = story.documents()
    except ValueError:
        return False
    if drafts.admission.refusal(None, story.start) is not None:
        return False
    for before, change, after in zip(documents, story.changes, documents[1:], strict=False):
        if not change.fits(before) or not drafts.is_possible(before, change):
            return False
        if change.kind == "rollback" and (before == after or drafts.admission.refusal(before, after) is not None):
            return False
    return True


def _smaller(story: Story, drafts: Drafts, first: JsonObject) -> Iterator[Story]:
    """Smaller stories, the ones that promise most first."""
    yield from _shorter(story, first)
    for position, change in enumerate(story.changes):
        for simpler in _simpler(change, drafts):
            changes = list(story.changes)
            changes[position] = simpler
            yield replace(story, changes=tuple(changes))
    for path in leaves_of(story.start):
        if len(path) > 1:
            yield replace(story, start=with_value(story.start, path, MISSING))
        if get(first, path) not in (MISSING, get(story.start, path)):
            yield replace(story, start=with_value(story.start, path, get(first, path)))


def _shorter(story: Story, first: JsonObject) -> Iterator[Story]:
    documents, changes = story.documents(), story.changes
    for kept in range(len(changes)):
        # The last changes alone: on the simplest object, and on one that has been like that from the beginning.
        last = changes[len(changes) - kept :]
        yield Story(first, last)
        yield Story(documents[len(changes) - kept], last)
    for position in range(len(changes)):
        yield replace(story, changes=(*changes[:position], *changes[position + 1 :]))


def _simpler(change: Change, drafts: Drafts) -> Iterator[Change]:
    if len(change.edits) > 1:
        for position in range(len(change.edits)):
            kept = (*change.edits[:position], *change.edits[position + 1 :])
            kind = "alter" if len(kept) == 1 and change.kind == "several" else change.kind
            yield replace(change, kind=kind, edits=kept, paths=())
    if change.kind in REFUSED or change.kind == "bad":
        # These values are what they are.
        return
    properties = {p.path: p for p in drafts.properties}
    for position, edit in enumerate(change.edits):
        prop = properties.get(edit.path)
        if prop is None or edit.value is MISSING:
            continue
        for value in drafts.good(prop):
            if value.value == edit.value:
                # What comes after is no simpler.
                break
            edits = (*change.edits[:position], Edit(edit.path, value.value), *change.edits[position + 1 :])
            yield replace(change, edits=edits, label=value.label if change.kind == "boundary" else "")
    if change.kind == "recreate" and change.edits:
        yield replace(change, edits=())
