"""Parameters brought to a server that runs, whose part a list of answers plays."""

from __future__ import annotations

import pymysql
import pytest

from steersman_agent.group import LocalServer, Unreachable
from steersman_agent.parameters import Parameters, number_of

Value = int | float | str | None


class Scripted(LocalServer):
    """It refuses what it is told to, and remembers the rest."""

    def __init__(self, **refuses: int) -> None:
        super().__init__("")
        self.refuses, self.given = refuses, list[tuple[str, Value]]()

    def set_global(self, name: str, value: Value) -> None:
        if name in self.refuses and not (self.refuses[name] == 1232 and isinstance(value, str)):
            raise Unreachable(pymysql.OperationalError(self.refuses[name], "the server's words"))
        self.given.append((name, value))

    def value_of(self, name: str) -> str:
        return f"{name} now"


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
