"""Parameters brought to a server that runs, whose part a list of answers plays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace

import pymysql
import pytest

from steersman_agent import parameters as looked_after
from steersman_agent.group import LocalServer, Unreachable
from steersman_agent.parameters import Parameters, number_of

Value = int | float | str | None


class Scripted(LocalServer):
    """It refuses what it is told to, and remembers the rest."""

    def __init__(self, **refuses: int) -> None:
        super().__init__("")
        self.refuses, self.given = refuses, list[tuple[str, Value]]()
        self.shows, self.busy = dict[str, str](), set[str]()

    def adjust(self, name: str, value: Value) -> None:
        if name in self.refuses and not (self.refuses[name] == 1232 and isinstance(value, str)):
            raise Unreachable(pymysql.OperationalError(self.refuses[name], "the server's words"))
        self.given.append((name, value))
        if name in self.busy:
            return
        # It writes what it was given in its own way.
        self.shows[name] = f"{value}.000"

    def value_of(self, name: str) -> str:
        return f"{name} now"

    def values_of(self, names: Collection[str]) -> Mapping[str, str]:
        return {name: self.shows[name] for name in names if name in self.shows}


class Clock(SimpleNamespace):
    """Of the agent."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(looked_after, "time", found)
    return found


@pytest.mark.parametrize(
    ("text", "number"),
    [("128M", 128 << 20), ("2g", 2 << 30), ("-1", -1), ("0.5", 0.5), ("ON", None), ("1M1", None), ("", None)],
)
def test_a_file_may_have_units_where_sql_wants_numbers(text: str, number: float | None) -> None:
    assert number_of(text) == number


def test_only_what_has_changed_is_given() -> None:
    server = Scripted()
    parameters = Parameters(server, {"table_open_cache": "400"})
    parameters.started({"a": "1", "b": "x"}, {})
    parameters.apply({"a": "1", "b": "x"})
    assert server.given == []
    parameters.apply({"a": "2", "table_open_cache": "9"})
    assert server.given == [("a", 2), ("b", None), ("table_open_cache", 9)]
    parameters.apply({})
    assert server.given[3:] == [("a", None), ("table_open_cache", 400)]


def test_what_waits_for_a_restart_waits_until_it_is_withdrawn() -> None:
    server = Scripted(a=1238)
    parameters = Parameters(server, {})
    parameters.started({"a": "1"}, {})
    parameters.apply({"a": "2"})
    assert parameters.pending == {"a": ["a now", "2"]}
    parameters.apply({})
    assert parameters.pending == {"a": ["a now", "the default"]}
    parameters.apply({"a": "1"})
    assert parameters.pending == {} and parameters.refused == {}


def test_what_is_refused_is_told_in_the_servers_words() -> None:
    parameters = Parameters(Scripted(a=1231), {})
    parameters.apply({"a": "2"})
    assert parameters.refused == {"a": "the server's words"} and parameters.pending == {}
    parameters.apply({})
    assert parameters.refused == {}


def test_what_would_not_have_started_is_given_when_it_is_mended() -> None:
    server = Scripted()
    parameters = Parameters(server, {})
    parameters.started({"a": "nonsense"}, {"a": "words"})
    parameters.apply({"a": "nonsense"})
    assert server.given == [] and parameters.refused == {"a": "words"}
    parameters.apply({"a": "1"})
    assert server.given == [("a", 1)] and parameters.refused == {}


def test_a_number_that_is_a_text_to_the_server() -> None:
    server = Scripted(a=1232)
    Parameters(server, {}).apply({"a": "1"})
    assert server.given == [("a", "1")]


def test_a_server_that_is_away_refuses_nothing() -> None:
    parameters = Parameters(Scripted(a=2013), {})
    with pytest.raises(Unreachable):
        parameters.apply({"a": "1"})
    assert parameters.refused == {}


def test_what_only_a_start_gave_is_had_until_the_next_start() -> None:
    """An option that is no variable, such as a filter: it cannot be taken from a server that runs."""
    server = Scripted(a=1193)
    parameters = Parameters(server, {})
    parameters.started({"a": "1"}, {})
    parameters.apply({})
    assert parameters.pending == {"a": ["1", "the default"]} and parameters.refused == {}
    parameters.started({}, {})
    parameters.apply({})
    assert parameters.pending == {}


def test_what_no_server_knows_is_not_waited_for() -> None:
    parameters = Parameters(Scripted(a=1193), {})
    parameters.started({}, {})
    parameters.apply({"a": "1"})
    assert parameters.refused == {"a": "the server's words"} and parameters.pending == {}
    parameters.apply({})
    assert parameters.pending == {} and parameters.refused == {}


def test_what_somebody_else_sets_is_as_declared_again(clock: Clock) -> None:
    server, began = Scripted(), datetime.now(UTC).replace(microsecond=0)
    parameters = Parameters(server, {})
    server.shows |= {"a": "1.000", "b": "x", "c": "undeclared"}
    parameters.started({"a": "1", "b": "x"}, {})
    assert parameters.restore() == [] and server.given == [], "what it shows of a start is what it made of that"
    server.shows |= {"a": "7.000", "c": "by hand"}
    assert parameters.restore() == [], "it is looked at every ten seconds"
    clock.at = 10
    assert parameters.restore() == ["a"]
    assert server.given == [("a", 1), ("a", 1)] and server.shows == {"a": "1.000", "b": "x", "c": "by hand"}
    assert parameters.restored is not None and parameters.restored["parameters"] == ["a"]
    assert began <= datetime.fromisoformat(str(parameters.restored["time"])) <= datetime.now(UTC)
    clock.at = 20
    assert parameters.restore() == []


def test_what_is_declared_anew_was_set_by_nobody_else(clock: Clock) -> None:
    server = Scripted()
    parameters = Parameters(server, {})
    parameters.apply({"a": "1", "b": "1"})
    assert parameters.restore() == []
    parameters.apply({"a": "2"})
    assert parameters.restore() == [], "it is looked at at once, so that nobody can have set it before"
    server.shows |= {"a": "7.000", "b": "7.000"}
    clock.at = 10
    assert parameters.restore() == ["a"] and server.shows["b"] == "7.000"


def test_a_start_is_a_beginning(clock: Clock) -> None:
    server = Scripted()
    parameters = Parameters(server, {})
    parameters.apply({"a": "1"})
    parameters.restore()
    parameters.started({"a": "1"}, {})
    server.shows = {"a": "1"}
    assert parameters.restore() == [] and parameters.restored is None


def test_what_cannot_be_set_back_is_tried_again_at_once(clock: Clock) -> None:
    server = Scripted()
    parameters = Parameters(server, {})
    parameters.apply({"a": "1"})
    parameters.restore()
    server.shows["a"], clock.at = "7.000", 10
    server.refuses["a"] = 2013
    with pytest.raises(Unreachable):
        parameters.restore()
    server.refuses.clear()
    assert parameters.restore() == ["a"]


def test_what_the_server_does_not_take_is_tried_again_and_told_when_it_does(clock: Clock) -> None:
    """Without a word, as where the last size of the buffer pool is still being made; or with one."""
    server = Scripted()
    parameters = Parameters(server, {})
    parameters.apply({"a": "1", "b": "1", "c": "1"})
    parameters.restore()
    server.shows |= {"a": "7.000", "b": "7.000", "c": "7.000"}
    server.busy, server.refuses["b"], clock.at = {"a"}, 1231, 10
    assert parameters.restore() == ["c"], "one does not keep the others"
    assert parameters.stays == {"a": "it is 7.000", "b": "the server's words"}
    server.busy, clock.at = set(), 20
    server.refuses.clear()
    assert parameters.restore() == ["a", "b"] and parameters.stays == {}


def test_what_one_changes_of_another_is_nobody_elses_doing(clock: Clock) -> None:
    server = Scripted()
    parameters = Parameters(server, {})
    parameters.apply({"a": "1", "b": "1"})
    parameters.restore()
    parameters.apply({"a": "2", "b": "1"})
    server.shows["b"] = "7.000"
    assert parameters.restore() == ["b"] and parameters.restored is None
