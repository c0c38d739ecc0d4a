"""``kubectl steersman advise``: its rules, and its text from recorded responses."""

from __future__ import annotations

import subprocess
from typing import Any

import msgspec
import pytest

from database_support.unit.plugin import PlayedExec, call, executed, pod, reached, server
from steersman_databases.kubectl.insight.advice import (
    Advice,
    Catalog,
    ForeignKeyFacts,
    IndexFacts,
    IndexUsage,
    NumberingFacts,
    TableFacts,
    advise,
)
from steersman_testing import InMemoryApiServer

__all__ = ["executed", "reached", "server"]

DAY = 86400
NOW = 1_900_000_000.0
TEXT = """\
UnusedIndex shop: t.a
  No instance has used it since 2030-03-07 17:46 UTC, or since its creation. \
It occupies 2.0 MiB, and each write maintains it.
  DROP INDEX t.a;

"""


def index(name: str, *columns: str, **more: Any) -> IndexFacts:
    facts: dict[str, Any] = {
        "table": "t",
        "name": f"t.{name}",
        "columns": columns or (name,),
        "signature": ",".join(columns or (name,)),
        "unique": False,
        "bytes": 2 << 20,
        "drop": f"DROP INDEX t.{name};",
    }
    return IndexFacts(**{**facts, **more})


def key(*columns: str, bytes: int = 0, table: str = "t") -> ForeignKeyFacts:
    return ForeignKeyFacts(table=table, name="k", columns=columns, referenced="r", bytes=bytes)


def counted(days: float | None = 10, **scans: int) -> IndexUsage:
    since = None if days is None else NOW - days * DAY
    return IndexUsage(database="shop", at=NOW, since=since, scans={f"t.{name}": n for name, n in scans.items()})


def found(catalog: Catalog, **usages: IndexUsage | None) -> list[tuple[str, str]]:
    return [(one.rule, one.object) for one in advise(catalog, usages, minimum_days=7)[0]]


def of(*indexes: IndexFacts, keys: tuple[ForeignKeyFacts, ...] = (), is_mysql: bool = False) -> Catalog:
    return Catalog(database="shop", indexes=indexes, foreign_keys=keys, is_mysql=is_mysql)


def test_index_is_unused_only_on_every_instance() -> None:
    catalog = of(index("a"), index("b"))
    assert found(catalog, one=counted(a=0, b=0), two=counted(a=0, b=1)) == [("UnusedIndex", "t.a")]
    assert found(catalog, one=counted(a=0, b=0), two=counted(b=0)) == [("UnusedIndex", "t.b")], (
        "two has not counted a"
    )


def test_unused_index_names_the_shortest_time() -> None:
    [advice], reason = advise(of(index("a")), {"one": counted(30, a=0), "two": counted(10, a=0)}, minimum_days=7)
    assert "since 2030-03-07 17:46 UTC" in advice.message and not reason


@pytest.mark.parametrize(
    ("usage", "note"),
    [
        (counted(3, a=0), "two has counted for 3.0 days, and 7 are required (--days)"),
        (counted(None, a=0), "two does not count the use of indexes"),
        (None, "two did not respond"),
    ],
)
def test_unused_index_needs_counts_of_all_instances(usage: IndexUsage | None, note: str) -> None:
    assert advise(of(index("a")), {"one": counted(a=0), "two": usage}, minimum_days=7) == ([], note)


def test_enforcing_indexes_are_never_unused() -> None:
    catalog = of(
        index("a", unique=True), index("b", constraint=True), index("c", "c", "d"), index("e"), keys=(key("c"),)
    )
    assert found(catalog, one=counted(a=0, b=0, c=0, e=0)) == [("UnusedIndex", "t.e")]


def test_index_of_mysql_for_referenced_column_is_required() -> None:
    reference = msgspec.structs.replace(key("x", table="other"), referenced="t", referenced_columns=("a",))
    catalog = of(index("a"), index("b"), keys=(reference,), is_mysql=True)
    assert found(catalog, one=counted(a=0, b=0)) == [("UnusedIndex", "t.b")]


def test_duplicate_index_keeps_the_unique_one() -> None:
    first, second = index("a", "c"), index("b", "c", unique=True)
    advice, _ = advise(of(first, second), {"one": counted(a=0, b=0)}, minimum_days=7)
    assert [(one.rule, one.sql) for one in advice] == [("DuplicateIndex", "DROP INDEX t.a;")]
    assert "t.b has the same definition and is unique" in advice[0].message


def test_duplicate_of_an_invisible_index_is_kept() -> None:
    """Without it, no index would be left that statements use."""
    catalog = of(index("a", "c", invisible=True), index("b", "c"))
    assert found(catalog, one=counted(a=0, b=1)) == [("DuplicateIndex", "t.a")]
    assert found(of(index("a", "c", invisible=True, unique=True), index("b", "c")), one=counted(a=0, b=1)) == []


def test_duplicate_constraints_are_kept() -> None:
    same: dict[str, Any] = {"unique": True, "constraint": True}
    assert found(of(index("a", "c", **same), index("b", "c", **same)), one=counted()) == []


def test_equal_indexes_of_two_tables_are_no_duplicates() -> None:
    assert found(of(index("a", "c"), index("b", "c", table="u")), one=counted(a=1, b=1)) == []


@pytest.mark.parametrize(
    ("present", "is_served"),
    [
        (index("i", "b", "a", "c"), True),
        (index("i", "a", "c", "b"), False),
        (index("i", "a"), False),
        (index("i", "a", "b", table="u"), False),
        (index("i", "a", "b", ordered=False), False),
        (index("i", "a", "b", condition="(state = 'open'::text)"), False),
        (index("i", "a", "b", condition="(a IS NOT NULL)"), True),
    ],
)
def test_foreign_key_needs_index_on_its_columns(present: IndexFacts, is_served: bool) -> None:
    rules = [rule for rule, _ in found(of(present, keys=(key("a", "b"),)), one=counted(i=1))]
    assert rules == ([] if is_served else ["ForeignKeyWithoutIndex"])


def test_foreign_keys_of_large_tables_come_first() -> None:
    catalog = of(keys=(key("a", bytes=1), key("b", bytes=9, table="large")))
    assert found(catalog, one=counted()) == [("ForeignKeyWithoutIndex", "large"), ("ForeignKeyWithoutIndex", "t")]


def test_numbering_is_reported_from_three_quarters_on() -> None:
    numberings = tuple(NumberingFacts(name=f"s{last}", last=last, limit=1000) for last in (749, 750, 1001))
    catalog = Catalog(database="shop", numberings=numberings)
    assert found(catalog) == [("SequenceNearEnd", "s1001"), ("SequenceNearEnd", "s750")]
    mysql = msgspec.structs.replace(catalog, is_mysql=True, keyless=(TableFacts(name="t", change="ALTER TABLE t;"),))
    assert {rule for rule, _ in found(mysql)} == {"AutoIncrementNearEnd", "TableWithoutPrimaryKey"}
    first: Advice = advise(catalog, {}, minimum_days=7)[0][0]
    assert first.message == "100 % of its values are used. Inserts fail after 1000."


def recorded(what: Any) -> str:
    return msgspec.json.encode(what).decode() + "\n"


def test_advise_reads_all_instances(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(*(pod(f"shop-{n}-0", "primary" if n == 1 else "replica") for n in range(3)))
    catalog = recorded(of(index("a"), index("b")))

    def prepare(last: Any) -> None:
        executed.by_pod = {
            "shop-0-0": [recorded(counted(a=0, b=3))],
            "shop-1-0": ['["blog", "shop"]', catalog, recorded(counted(a=0, b=0))],
            "shop-2-0": [last],
        }

    prepare(recorded(counted(a=0, b=0)))
    shown = call("advise", "shop")
    assert (shown.stdout, shown.stderr) == (TEXT, "")
    assert executed.commands[1][-2:] == ["blog", "shop"]
    prepare(subprocess.CompletedProcess((), 1, stdout="", stderr="container not found\n"))
    lacking = call("advise", "shop", "--database", "shop")
    assert lacking.stdout == "No advice.\n"
    assert lacking.stderr.splitlines() == [
        "shop-2: container not found",
        "Unused indexes of shop are unknown: shop-2 did not respond",
    ]
    assert executed.commands[-1][-1] == "shop" and executed.commands[-1][-2] == "sh"
    prepare(recorded(counted(a=0, b=0)))
    report = msgspec.json.decode(call("advise", "shop", "-o", "json").stdout)
    assert [one["sql"] for one in report["advice"]] == ["DROP INDEX t.a;"]


def test_advise_counts_an_instance_without_pod(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-1-0", "primary"), pod("shop-0-0", "replica"))
    executed.by_pod = {
        "shop-0-0": [recorded(counted(a=0))],
        "shop-1-0": ['["shop"]', recorded(of(index("a"))), recorded(counted(a=0))],
    }
    assert "shop-2 did not respond" in call("advise", "shop").stderr


def test_advise_notes_a_database_that_fails(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(*(pod(f"shop-{n}-0", "primary" if n == 1 else "replica") for n in range(3)))
    broken = subprocess.CompletedProcess((), 2, stdout=recorded(of(index("a"))), stderr="blog: invalid page\n")
    usage = recorded(counted(a=0))
    executed.by_pod = {
        "shop-0-0": [usage],
        "shop-1-0": ['["blog", "shop"]', broken, usage],
        "shop-2-0": [usage],
    }
    shown = call("advise", "shop")
    assert shown.stdout == TEXT and shown.stderr == "blog: invalid page\n"


def test_advise_of_unknown_database_is_a_usage_error(server: InMemoryApiServer, executed: PlayedExec) -> None:
    server.load(pod("shop-1-0", "primary"))
    executed.responses += ['["shop"]', ""]
    shown = call("advise", "shop", "--database", "blog")
    assert shown.exit_code == 2 and "no database blog" in shown.stderr
