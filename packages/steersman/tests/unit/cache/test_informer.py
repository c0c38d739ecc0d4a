"""What subscribers are told, and that the store says the same."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from framework_support.buoy import Buoy, buoy
from framework_support.scripted_transport import ScriptedTransport
from steersman.cache import Change, Informer
from steersman.cache.part import Part
from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_testing.virtual_clock import virtual_runtime


@pytest.fixture
def informer() -> Informer[Buoy]:
    return Informer(Client(ScriptedTransport()), Buoy, runtime=virtual_runtime())


@pytest.fixture
def part(informer: Informer[Buoy]) -> Part[Buoy]:
    return informer.parts[0]


def listed(part: Part[Buoy], *objects: Buoy) -> None:
    """A list of ``objects``, as new as the newest of them."""
    part.list_begins(whole=False)
    for obj in objects:
        part.listed(obj, 100)
    assert part.list_ends(max((o.metadata.resource_version for o in objects), key=int))


class Told(list[tuple[str, str, str]]):
    """What a subscriber was told, as (old version, new version, name); absent ones are empty."""

    def __call__(self, change: Change[Buoy]) -> None:
        old = change.old.metadata.resource_version if change.old else ""
        new = change.new.metadata.resource_version if change.new else ""
        self.append((old, new, change.object.metadata.name))

    def take(self) -> list[tuple[str, str, str]]:
        taken = list(self)
        self.clear()
        return taken


@pytest.fixture
def told(informer: Informer[Buoy]) -> Told:
    told = Told()
    informer.subscribe(told)
    return told


def test_a_list_then_changes(informer: Informer[Buoy], part: Part[Buoy], told: Told) -> None:
    assert not informer.has_synced
    listed(part, buoy("a", 1), buoy("b", 2))
    assert informer.has_synced
    assert told.take() == [("", "1", "a"), ("", "2", "b")]
    part.upsert(buoy("a", 3), 100)
    part.delete(ObjectKey("sea", "b"), "uid-b", "99")
    assert told.take() == [("1", "3", "a"), ("2", "", "b")]
    assert [o.metadata.name for o in informer.store] == ["a"]


def test_the_first_list_is_marked_and_later_news_are_not(informer: Informer[Buoy], part: Part[Buoy]) -> None:
    seen: list[bool] = []
    informer.subscribe(lambda change: seen.append(change.initial))
    listed(part, buoy("a", 1))
    part.upsert(buoy("b", 2), 100)
    listed(part, buoy("a", 3), buoy("b", 2), buoy("c", 4))
    assert seen == [True, False, False, True]


def test_what_was_deleted_while_nobody_watched(informer: Informer[Buoy], part: Part[Buoy], told: Told) -> None:
    listed(part, buoy("a", 1), buoy("b", 2))
    told.take()
    listed(part, buoy("b", 2))
    assert told.take() == [("1", "", "a")]


def test_what_was_deleted_and_created_again_while_nobody_watched(
    informer: Informer[Buoy], part: Part[Buoy], told: Told
) -> None:
    listed(part, buoy("a", 1, uid="first"))
    told.take()
    listed(part, buoy("a", 9, uid="second"))
    assert told.take() == [("1", "", "a"), ("", "9", "a")]


def test_the_same_version_again_is_no_news(informer: Informer[Buoy], part: Part[Buoy], told: Told) -> None:
    listed(part, buoy("a", 1))
    told.take()
    listed(part, buoy("a", 1))
    part.upsert(buoy("a", 1), 100)
    assert told == []


def test_the_deletion_of_something_unknown_is_no_news(informer: Informer[Buoy], part: Part[Buoy], told: Told) -> None:
    part.delete(ObjectKey("sea", "never"), "uid-never", "99")
    assert told == []


def test_who_subscribes_late_learns_what_is_there(informer: Informer[Buoy], part: Part[Buoy]) -> None:
    listed(part, buoy("a", 1), buoy("b", 2))
    told = Told()
    informer.subscribe(told)
    assert told == [("", "1", "a"), ("", "2", "b")]


def test_the_store_is_ahead_of_what_is_told(informer: Informer[Buoy], part: Part[Buoy]) -> None:
    seen: list[bool] = []
    informer.subscribe(lambda change: seen.append(informer.store.get(change.object.key) is change.new))
    listed(part, buoy("a", 1))
    part.upsert(buoy("a", 2), 100)
    part.delete(ObjectKey("sea", "a"), "uid-a", "99")
    assert seen == [True, True, True]


def test_a_subscriber_that_fails_costs_the_others_nothing(informer: Informer[Buoy], part: Part[Buoy]) -> None:
    def fail(change: Change[Buoy]) -> None:
        raise RuntimeError(f"cannot map {change.object.metadata.name}")

    told = Told()
    informer.subscribe(fail)
    informer.subscribe(told)
    with capture_logs() as logs:
        listed(part, buoy("a", 1), buoy("b", 2))
    assert told == [("", "1", "a"), ("", "2", "b")]
    assert [(entry["log_level"], entry["object"]) for entry in logs] == [("error", "sea/a"), ("error", "sea/b")]
