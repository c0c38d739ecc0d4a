"""What went in a run, and what of that the operator ended although it lives without faults."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from steersman_testing.apiserver.storage import Event, Stored
from steersman_testing.generated_names import generated_prefix
from steersman_testing.simulation.journal import Entry


class Ending(Struct, frozen=True):
    """An object that a call of the operator ended, or marked for deletion.

    Attributes:
        call: in words.
        name: of the object, such as ``pods default/web-0``; a generated name by what it begins with.
        alike: how many of its name lived until then: none that is marked for deletion already.
    """

    call: str
    name: str
    alike: int


class Removals(Struct, frozen=True):
    """What went in a run.

    Attributes:
        counts: by name, how often it went, by whom ever.
        most: by generated name, how many lived at once, at most.
        endings: what the operator ended.
        lasting: the names of what lived when all was quiet.
    """

    counts: Mapping[str, int]
    most: Mapping[str, int]
    endings: tuple[Ending, ...]
    lasting: frozenset[str]


NO_REMOVALS = Removals({}, {}, (), frozenset())


def ended_by(events: Iterable[Event], resource: str) -> tuple[Event, ...]:
    """Those of the changes by one call that end objects of its own ``resource``.

    Not what follows from it, as that a finalizer was the last one, or that an owner is gone.
    """
    return tuple(e for e in events if e.collection.qualified == resource and _ends(e))


def _ends(event: Event) -> bool:
    return _lives(event.before) and not _lives(event.after)


def _lives(stored: Stored | None) -> bool:
    return stored is not None and not stored.is_deleting


def removals(history: Iterable[Event], calls: Iterable[Entry], looks: Iterable[int]) -> Removals:
    """What the ``history`` of a run's server tells, and the ``calls`` of its operator.

    Args:
        looks: the versions at which all was quiet, in order.
    """
    by_version = {event.version: entry for entry in calls for event in entry.ended}
    counts, alive, most = Counter[str](), Counter[str](), Counter[str]()
    endings: list[Ending] = []
    lasting: set[str] = set()
    coming = deque(looks)
    for event in history:
        while coming and coming[0] < event.version:
            coming.popleft()
            lasting.update(+alive)
        stored = event.after or event.before
        assert stored is not None
        name = _told(stored)
        if event.version in by_version:
            entry = by_version[event.version]
            own = entry.text == f"DELETE {stored.collection.qualified} {stored.key}"
            call = entry.text if own else f"{entry.text} ends {name}"
            endings.append(Ending(call, name, alive[name]))
        alive[name] += _lives(event.after) - _lives(event.before)
        if name.endswith("*"):
            most[name] = max(most[name], alive[name])
        if event.after is None:
            counts[name] += 1
    if coming:
        lasting.update(+alive)
    return Removals(counts, most, tuple(endings), frozenset(lasting))


def _told(stored: Stored) -> str:
    prefix = generated_prefix(stored.object["metadata"])
    place = f"{stored.key.namespace}/" if stored.key.namespace else ""
    return (
        f"{stored.collection.qualified} {place}{prefix}*" if prefix else f"{stored.collection.qualified} {stored.key}"
    )


def needless(actual: Removals, expected: Removals) -> Iterator[str]:
    """What the operator ended although it lives without faults, a line each.

    That is what went more often than it should, and by the operator's calls: what is made for an owner that is gone
    goes again by the garbage collector. Of objects with generated names, one that is too many may go: it was made
    twice. What never outlives its work, such as a helper's pod, goes as often as the work is done.

    Only how often is known, and not when: what the scenario deletes later may go too early unseen.
    """
    ended, usual = (Counter(ending.name for ending in r.endings) for r in (actual, expected))
    for ending in actual.endings:
        name = ending.name
        too_many = name in actual.most and ending.alike > expected.most.get(name, 0)
        more = actual.counts.get(name, 0) > expected.counts.get(name, 0) and ended[name] > usual[name]
        if more and not too_many and name in expected.lasting:
            yield f"{ending.call}: it lives without faults"
