"""What went in a run, and what of that the operator ended although it lives without faults."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from steersman_testing.apiserver.storage import StorageEvent, StoredObject
from steersman_testing.generated_names import generated_prefix
from steersman_testing.simulation.trace import TraceEntry


class OperatorDeletion(Struct, frozen=True):
    """An object that a call of the operator ended, or marked for deletion.

    Attributes:
        call: in words.
        name: of the object, such as ``pods default/web-0``; a generated name by what it begins with.
        alike: how many of its name lived until then: none that is marked for deletion already.
    """

    call: str
    name: str
    live_count: int


class DeletionAudit(Struct, frozen=True):
    """What went in a run.

    Attributes:
        counts: by name, how often it went, by whom ever.
        most: by generated name, how many lived at once, at most.
        endings: what the operator ended.
        lasting: the names of what lived when all was quiet.
    """

    deletion_counts: Mapping[str, int]
    max_live: Mapping[str, int]
    by_operator: tuple[OperatorDeletion, ...]
    surviving: frozenset[str]


EMPTY_AUDIT = DeletionAudit({}, {}, (), frozenset())


def deletion_events(events: Iterable[StorageEvent], resource: str) -> tuple[StorageEvent, ...]:
    """Those of the changes by one call that end objects of its own ``resource``.

    Not what follows from it, as that a finalizer was the last one, or that an owner is gone.
    """
    return tuple(e for e in events if e.collection.qualified == resource and _is_deletion(e))


def _is_deletion(event: StorageEvent) -> bool:
    return _is_live(event.before) and not _is_live(event.after)


def _is_live(stored: StoredObject | None) -> bool:
    return stored is not None and not stored.is_deleting


def audit_deletions(
    history: Iterable[StorageEvent], calls: Iterable[TraceEntry], quiet_versions: Iterable[int]
) -> DeletionAudit:
    """What the ``history`` of a run's server tells, and the ``calls`` of its operator.

    Args:
        looks: the versions at which all was quiet, in order.
    """
    by_version = {event.version: entry for entry in calls for event in entry.deletions}
    deletion_counts, live, max_live = Counter[str](), Counter[str](), Counter[str]()
    by_operator: list[OperatorDeletion] = []
    surviving: set[str] = set()
    pending_versions = deque(quiet_versions)
    for event in history:
        while pending_versions and pending_versions[0] < event.version:
            pending_versions.popleft()
            surviving.update(+live)
        stored = event.after or event.before
        assert stored is not None
        name = _display_name(stored)
        if event.version in by_version:
            entry = by_version[event.version]
            is_direct = entry.text == f"DELETE {stored.collection.qualified} {stored.key}"
            call = entry.text if is_direct else f"{entry.text} ends {name}"
            by_operator.append(OperatorDeletion(call, name, live[name]))
        live[name] += _is_live(event.after) - _is_live(event.before)
        if name.endswith("*"):
            max_live[name] = max(max_live[name], live[name])
        if event.after is None:
            deletion_counts[name] += 1
    if pending_versions:
        surviving.update(+live)
    return DeletionAudit(deletion_counts, max_live, tuple(by_operator), frozenset(surviving))


def _display_name(stored: StoredObject) -> str:
    prefix = generated_prefix(stored.object["metadata"])
    place = f"{stored.key.namespace}/" if stored.key.namespace else ""
    return (
        f"{stored.collection.qualified} {place}{prefix}*" if prefix else f"{stored.collection.qualified} {stored.key}"
    )


def unexpected_deletions(actual: DeletionAudit, expected: DeletionAudit) -> Iterator[str]:
    """What the operator ended although it lives without faults, a line each.

    That is what went more often than it should, and by the operator's calls: what is made for an owner that is gone
    goes again by the garbage collector. Of objects with generated names, one that is too many may go: it was made
    twice. What never outlives its work, such as a helper's pod, goes as often as the work is done.

    Only how often is known, and not when: what the scenario deletes later may go too early unseen.
    """
    actual_counts, expected_counts = (
        Counter(deletion.name for deletion in r.by_operator) for r in (actual, expected)
    )
    for ending in actual.by_operator:
        name = ending.name
        is_surplus = name in actual.max_live and ending.live_count > expected.max_live.get(name, 0)
        is_excess = (
            actual.deletion_counts.get(name, 0) > expected.deletion_counts.get(name, 0)
            and actual_counts[name] > expected_counts[name]
        )
        if is_excess and not is_surplus and name in expected.surviving:
            yield f"{ending.call}: it lives without faults"
