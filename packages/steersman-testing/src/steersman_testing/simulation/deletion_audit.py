"""Audit of objects that the operator deleted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from steersman_testing.apiserver.storage import StorageEvent, StoredObject
from steersman_testing.generated_names import generated_prefix
from steersman_testing.simulation.trace import TraceEntry


class OperatorDeletion(Struct, frozen=True):
    """A deletion by a call of the operator.

    Attributes:
        call: description of the call.
        name: name of the object, such as ``pods default/web-0``. A generated name is shortened to its prefix.
        live_count: number of objects with this name before the call, without those marked for deletion.
    """

    call: str
    name: str
    live_count: int


class DeletionAudit(Struct, frozen=True):
    """Deletions of a run.

    Attributes:
        deletion_counts: number of deletions by name, by any client.
        max_live: largest number of objects at one time, by generated name.
        by_operator: deletions by the operator.
        surviving: names of objects that existed when the state was stable.
    """

    deletion_counts: Mapping[str, int]
    max_live: Mapping[str, int]
    by_operator: tuple[OperatorDeletion, ...]
    surviving: frozenset[str]


EMPTY_AUDIT = DeletionAudit({}, {}, (), frozenset())


def deletion_events(events: Iterable[StorageEvent], resource: str) -> tuple[StorageEvent, ...]:
    """Return the events in which one call deleted its objects.

    Consequences are excluded, such as the removal of the last finalizer or the garbage collection of dependents.
    """
    return tuple(e for e in events if e.collection.qualified == resource and _is_deletion(e))


def _is_deletion(event: StorageEvent) -> bool:
    return _is_live(event.before) and not _is_live(event.after)


def _is_live(stored: StoredObject | None) -> bool:
    return stored is not None and not stored.is_deleting


def audit_deletions(
    history: Iterable[StorageEvent], calls: Iterable[TraceEntry], quiet_versions: Iterable[int]
) -> DeletionAudit:
    """Audit the event history with the calls of the operator.

    Args:
        history: events of the API server in order.
        calls: calls of the operator.
        quiet_versions: resourceVersions at which the state was stable, in order.
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
            call = entry.text if is_direct else f"{entry.text} deletes {name}"
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
    """Describe objects that the operator must not have deleted.

    Such an object is deleted more often than in the reference run, and by calls of the operator, since the garbage
    collector deletes dependents anyway. If a generated name exists more often than in the reference run, deleting the
    surplus object is correct. Objects that are never in a snapshot, such as pods of a helper, do not count.

    Only the number of deletions is compared. A deletion that happens too early is not detected.
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
            yield f"{ending.call}: it survives without faults"
