"""Parameters brought to a server that runs, whose part a list of answers plays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace

import pymysql
import pytest

from steersman_agent.group.group_status import LocalServer, ServerQueryFailed
from steersman_agent.server import parameters as looked_after
from steersman_agent.server.parameters import ParameterSync, number_of

Value = int | float | str | None


class Scripted(LocalServer):
    """It refuses what it is told to, and remembers the rest."""

    def __init__(self, **refuses: int) -> None:
        super().__init__("")
        self.refuses, self.given = refuses, list[tuple[str, Value]]()
        self.shows, self.busy = dict[str, str](), set[str]()

    def set_global_kept(self, name: str, value: Value) -> None:
        if name in self.refuses and not (self.refuses[name] == 1232 and isinstance(value, str)):
            raise ServerQueryFailed(pymysql.OperationalError(self.refuses[name], "the server's words"))
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
def test_unit_suffix_becomes_number(text: str, number: float | None) -> None:
    assert number_of(text) == number


def test_only_changed_parameters_are_set() -> None:
    server = Scripted()
    parameters = ParameterSync(server, {"table_open_cache": "400"})
    parameters.record_start({"a": "1", "b": "x"}, {})
    parameters.apply({"a": "1", "b": "x"})
    assert server.given == []
    parameters.apply({"a": "2", "table_open_cache": "9"})
    assert server.given == [("a", 2), ("b", None), ("table_open_cache", 9)]
    parameters.apply({})
    assert server.given[3:] == [("a", None), ("table_open_cache", 400)]


def test_restart_parameter_is_pending_until_withdrawn() -> None:
    server = Scripted(a=1238)
    parameters = ParameterSync(server, {})
    parameters.record_start({"a": "1"}, {})
    parameters.apply({"a": "2"})
    assert parameters.pending == {"a": ["a now", "2"]}
    parameters.apply({})
    assert parameters.pending == {"a": ["a now", "the default"]}
    parameters.apply({"a": "1"})
    assert parameters.pending == {} and parameters.rejected == {}


def test_rejected_parameter_reports_server_message() -> None:
    parameters = ParameterSync(Scripted(a=1231), {})
    parameters.apply({"a": "2"})
    assert parameters.rejected == {"a": "the server's words"} and parameters.pending == {}
    parameters.apply({})
    assert parameters.rejected == {}


def test_rejected_at_start_is_set_once_corrected() -> None:
    server = Scripted()
    parameters = ParameterSync(server, {})
    parameters.record_start({"a": "nonsense"}, {"a": "words"})
    parameters.apply({"a": "nonsense"})
    assert server.given == [] and parameters.rejected == {"a": "words"}
    parameters.apply({"a": "1"})
    assert server.given == [("a", 1)] and parameters.rejected == {}


def test_numeric_text_value_is_quoted() -> None:
    server = Scripted(a=1232)
    ParameterSync(server, {}).apply({"a": "1"})
    assert server.given == [("a", "1")]


def test_unreachable_server_rejects_nothing() -> None:
    parameters = ParameterSync(Scripted(a=2013), {})
    with pytest.raises(ServerQueryFailed):
        parameters.apply({"a": "1"})
    assert parameters.rejected == {}


def test_start_only_parameter_is_kept_until_restart() -> None:
    """An option that is no variable, such as a filter: it cannot be taken from a server that runs."""
    server = Scripted(a=1193)
    parameters = ParameterSync(server, {})
    parameters.record_start({"a": "1"}, {})
    parameters.apply({})
    assert parameters.pending == {"a": ["1", "the default"]} and parameters.rejected == {}
    parameters.record_start({}, {})
    parameters.apply({})
    assert parameters.pending == {}


def test_unknown_parameter_is_not_pending() -> None:
    parameters = ParameterSync(Scripted(a=1193), {})
    parameters.record_start({}, {})
    parameters.apply({"a": "1"})
    assert parameters.rejected == {"a": "the server's words"} and parameters.pending == {}
    parameters.apply({})
    assert parameters.pending == {} and parameters.rejected == {}


def test_foreign_change_is_restored(clock: Clock) -> None:
    server, began = Scripted(), datetime.now(UTC).replace(microsecond=0)
    parameters = ParameterSync(server, {})
    server.shows |= {"a": "1.000", "b": "x", "c": "undeclared"}
    parameters.record_start({"a": "1", "b": "x"}, {})
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


def test_newly_declared_value_is_not_foreign(clock: Clock) -> None:
    server = Scripted()
    parameters = ParameterSync(server, {})
    parameters.apply({"a": "1", "b": "1"})
    assert parameters.restore() == []
    parameters.apply({"a": "2"})
    assert parameters.restore() == [], "it is looked at at once, so that nobody can have set it before"
    server.shows |= {"a": "7.000", "b": "7.000"}
    clock.at = 10
    assert parameters.restore() == ["a"] and server.shows["b"] == "7.000"


def test_start_resets_tracking(clock: Clock) -> None:
    server = Scripted()
    parameters = ParameterSync(server, {})
    parameters.apply({"a": "1"})
    parameters.restore()
    parameters.record_start({"a": "1"}, {})
    server.shows = {"a": "1"}
    assert parameters.restore() == [] and parameters.restored is None


def test_failed_restore_is_retried_at_once(clock: Clock) -> None:
    server = Scripted()
    parameters = ParameterSync(server, {})
    parameters.apply({"a": "1"})
    parameters.restore()
    server.shows["a"], clock.at = "7.000", 10
    server.refuses["a"] = 2013
    with pytest.raises(ServerQueryFailed):
        parameters.restore()
    server.refuses.clear()
    assert parameters.restore() == ["a"]


def test_rejected_restore_is_retried_and_reported(clock: Clock) -> None:
    """Without a word, as where the last size of the buffer pool is still being made; or with one."""
    server = Scripted()
    parameters = ParameterSync(server, {})
    parameters.apply({"a": "1", "b": "1", "c": "1"})
    parameters.restore()
    server.shows |= {"a": "7.000", "b": "7.000", "c": "7.000"}
    server.busy, server.refuses["b"], clock.at = {"a"}, 1231, 10
    assert parameters.restore() == ["c"], "one does not keep the others"
    assert parameters.unchangeable == {"a": "it is 7.000", "b": "the server's words"}
    server.busy, clock.at = set(), 20
    server.refuses.clear()
    assert parameters.restore() == ["a", "b"] and parameters.unchangeable == {}


def test_side_effect_change_is_not_foreign(clock: Clock) -> None:
    server = Scripted()
    parameters = ParameterSync(server, {})
    parameters.apply({"a": "1", "b": "1"})
    parameters.restore()
    parameters.apply({"a": "2", "b": "1"})
    server.shows["b"] = "7.000"
    assert parameters.restore() == ["b"] and parameters.restored is None
