"""Tests of the database benchmarks: valid objects and parsed output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
import typer
from benchmarks import plot, results
from benchmarks.databases import __main__ as command
from benchmarks.databases import many_databases
from benchmarks.databases.catalog import CREATION, DRIFT, MANY, SCENARIOS, picture
from benchmarks.databases.drift import drifts
from benchmarks.databases.operator_pod import ResourceUsage, parse_usage
from benchmarks.databases.scenarios import DatabaseBenchmark, DatabaseScenario, PrintLine
from benchmarks.databases.write_gaps import (
    Row,
    dual_primary_seconds,
    longest_gap,
    parse_acknowledged,
    rows_of_first_server,
)
from benchmarks.measurement import Figure, Measurement, ProcessorTicks
from benchmarks.summary import summarise

from devcluster.errors import DevclusterError
from devcluster.target import Target
from steersman.api.apply import core, meta
from steersman.client import Client
from steersman.meta import decode_builtins
from steersman_databases.api import Database, DatabaseUser
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time


@virtual_time
async def test_declared_objects_are_accepted_by_api_server() -> None:
    server = InMemoryApiServer(virtual_runtime())
    server.register(Database, DatabaseUser)
    client = Client(server, field_manager="bench")
    await client.apply(core.Namespace(metadata=meta.ObjectMeta(name="bench")))
    kinds = {"Database": Database, "DatabaseUser": DatabaseUser}
    for each in many_databases.objects("orders", 3, 7):
        wire = {**each, "metadata": {**each["metadata"], "namespace": "bench"}}
        await client.create(decode_builtins(wire, kinds[each["kind"]]))
    assert len(server.read_all(Database)) == 3
    databases = {user.spec.grants[0].database for user in server.read_all(DatabaseUser)}
    assert databases == {"shop_0", "shop_1", "shop_2"}


def test_ready_since_returns_transition_times() -> None:
    def item(*conditions: dict[str, str]) -> dict[str, Any]:
        return {"status": {"conditions": list(conditions)}}

    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"}
    failed, paused = {"type": "Ready", "status": "False"}, {"type": "Paused", "status": "True"}
    items = [
        item(ready),
        item(failed),
        item(paused, {**ready, "lastTransitionTime": "1970-01-01T00:00:07Z"}),
        {},
        item(),
    ]
    assert many_databases.ready_timestamps(items) == [100.0, 7.0]


def test_usage_of_parses_kubelet_summary() -> None:
    told = {
        "name": "manager",
        "startTime": "2026-11-22T06:00:00Z",
        "cpu": {"time": "2026-11-22T07:00:00Z", "usageNanoCores": 1, "usageCoreNanoSeconds": 2_500_000_000},
        "memory": {"time": "2026-11-22T07:00:00Z", "workingSetBytes": 200 * 2**20, "rssBytes": 100 * 2**20},
    }
    assert parse_usage(told) == ResourceUsage(1795330800.0, 2.5, 100.0, "2026-11-22T06:00:00Z")
    assert parse_usage({"name": "manager", "cpu": {"time": "2026-11-22T07:00:00Z"}}) is None


def test_an_operator_that_was_restarted_is_not_measured() -> None:
    before = ResourceUsage(1.0, 50.0, 100.0, "2026-11-22T06:00:00Z")
    assert replace(before, timestamp=2.0, cpu=52.5).cpu_since(before) == 2.5
    with pytest.raises(DevclusterError, match="restarted at 2026-11-22T06:30:00Z"):
        replace(before, timestamp=2.0, cpu=52.5, container="2026-11-22T06:30:00Z").cpu_since(before)


def test_the_longest_gap() -> None:
    assert longest_gap(acknowledged_rows("a", 10.0, 10.02, 11.5, 11.52)) == pytest.approx(1.48)
    assert longest_gap(acknowledged_rows("a", 10.0)) == 0.0


def acknowledged_rows(server: str, *moments: float) -> list[Row]:
    return [Row(number, moment, server) for number, moment in enumerate(moments)]


def test_acknowledged_parses_writer_output() -> None:
    said = ["pid 17", "3 1763000000.1234 1762.5", "1763000001.1 server closed the connection", "4 1763000002.0 b"]
    assert parse_acknowledged(said) == [Row(3, 1763000000.1234, "1762.5"), Row(4, 1763000002.0, "b")]


def test_overlap_measures_dual_primary_seconds() -> None:
    former = acknowledged_rows("a", 10.0, 11.0, 12.0)
    assert (
        dual_primary_seconds(former, [*acknowledged_rows("a", 10.1, 11.1), *acknowledged_rows("b", 14.0)], since=10.5)
        == 0.0
    )
    assert dual_primary_seconds(
        former, [*acknowledged_rows("a", 10.1), *acknowledged_rows("b", 11.25)], since=10.5
    ) == pytest.approx(0.75)
    # A long gap alone does not count: no other server acknowledged a write.
    assert dual_primary_seconds(former, acknowledged_rows("a", 10.1, 10.2, 13.0), since=10.5) == 0.0
    # Clients outside the pod know the previous primary by another address.
    assert dual_primary_seconds(former, acknowledged_rows("a2", 11.5), since=10.5, names={"a2"}) == 0.0
    assert dual_primary_seconds(former, acknowledged_rows("a2", 11.5), since=10.5) == pytest.approx(0.5)
    assert dual_primary_seconds([], acknowledged_rows("b", 14.0), since=10.5) == 0.0


def test_of_first_returns_rows_of_first_server() -> None:
    seen = [*acknowledged_rows("a", 10.0, 11.0), *acknowledged_rows("b", 14.0)]
    assert rows_of_first_server(seen) == acknowledged_rows("a", 10.0, 11.0) and not rows_of_first_server([])


def test_scenario_and_drift_names_are_unique() -> None:
    assert len({scenario.name for scenario in SCENARIOS}) == len({scenario.title for scenario in SCENARIOS})
    assert len({harm.name for harm in drifts("shop", "clerk")}) == len(drifts("shop", "clerk"))


def test_save_results_replaces_one_scenario_and_draws(tmp_path: Path) -> None:
    creation = [
        Measurement(CREATION, who, "apply to Ready", s, "s") for who in ("1 instance", "3 instances") for s in (4, 6)
    ]
    drift = [Measurement(DRIFT, "healed after", harm.name, 7.0, "s") for harm in drifts("shop", "clerk")]
    many = [Measurement(MANY, "200 Databases, 1000 DatabaseUsers", "all Databases Ready", 60.0, "s")]
    told = {"machine": "one", "runs": "2", "day": "2026-11-22"}
    results.write(results.merge(results.load(tmp_path), [*creation, *many], told), tmp_path)
    summaries = results.write(results.merge(results.load(tmp_path), drift, told), tmp_path)
    assert {summary.scenario for summary in summaries} == {CREATION, MANY, DRIFT}
    drawn = plot.draw(summaries, ["one"], picture(summarise([*creation, *many, *drift])))
    titles = [text.text for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert "Grant revoked: healed after, s" in titles
    assert "A cluster is made: from apply to Ready, s" in titles


@pytest.mark.parametrize(("add", "kept"), [(True, [1.0, 2.0, 3.0]), (False, [1.0])])
def test_interrupted_scenario_keeps_completed_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, add: bool, kept: list[float]
) -> None:
    """Completed runs are added without replacing the scenario; no new run starts."""

    def cut(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
        yield from (Measurement(title, "who", "write gap", value, "s") for value in (2.0, 3.0))
        raise KeyboardInterrupt

    def never(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
        pytest.fail("begun")

    scenarios = (DatabaseScenario("cut", "t", cut), DatabaseScenario("never", "never", never))
    found = saved_after_failure(monkeypatch, tmp_path, scenarios, add=add)
    assert [m.value for m in found.measurements] == kept
    assert found.machines["t"]["runs"] == str(len(kept))


def saved_after_failure(
    monkeypatch: pytest.MonkeyPatch, directory: Path, scenarios: tuple[DatabaseScenario, ...], *, add: bool
) -> results.Runs:
    """Return the saved metrics after a failed run; ``t`` existed before."""

    def nothing(*_: object) -> None: ...

    printed = {"machine": "one", "runs": "1", "day": "2026-11-22"}
    results.write(results.merge(results.Runs(), [Measurement("t", "who", "write gap", 1.0, "s")], printed), directory)
    picture = directory / "picture.svg"
    given = {"DIRECTORY": directory, "PLOT": picture, "SCENARIOS": scenarios}
    given |= {"select_target": nothing, "install": nothing}
    for name, value in given.items():
        monkeypatch.setattr(command, name, value)
    with pytest.raises(typer.Exit) as ended:
        command.main(None, add=add)
    assert ended.value.exit_code == 1
    return results.load(directory)


@pytest.mark.parametrize("add", [True, False])
def test_scenario_without_a_fault_is_printed_but_not_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], add: bool
) -> None:
    """Saving would drop the fault's row or leave it with fewer runs."""

    def partly(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
        bench.skip_part("node-cut-off", "two nodes")
        yield Measurement(title, "who", "write gap", 2.0, "s")

    found = saved_after_failure(monkeypatch, tmp_path, (DatabaseScenario("partly", "t", partly),), add=add)
    assert [m.value for m in found.measurements] == [1.0]
    said = capsys.readouterr().out
    assert "node-cut-off is skipped, so the results are not saved: two nodes" in said and "write gap" in said


def database_benchmark(print_line: PrintLine) -> DatabaseBenchmark:
    return DatabaseBenchmark(cast("Target", None), 1, 1, 1, print_line)


def stub_steal(monkeypatch: pytest.MonkeyPatch, *percent: float) -> None:
    """Fake the stolen CPU percentage of upcoming runs of 1,000 ticks each."""
    total, stolen = 0, 0.0
    moments = [ProcessorTicks(0, 0)]
    for share in percent:
        total, stolen = total + 1000, stolen + 10 * share
        moments += [ProcessorTicks(total, int(stolen))] * 2
    remaining = iter(moments)
    monkeypatch.setattr(ProcessorTicks, "now", lambda: next(remaining))


def test_undisturbed_run_repeats_while_host_steals_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_steal(monkeypatch, 30.0, 11.0, 4.0)
    told, turns = list[str](), count(1)
    found = database_benchmark(told.append).measure_run(
        "t", "who", lambda: [Figure("write gap", next(turns), "s")], "killed: "
    )
    assert [(m.peer, m.metric, m.value) for m in found] == [
        ("who", "killed: write gap", 3),
        ("who", "killed: taken by the machine's host", 4.0),
        ("who", "killed: repeated", 2.0),
    ]
    assert told == [
        *(f"the host took {share} % of the CPU time: the run is repeated" for share in (30, 11)),
        "who: killed: write gap 3.00 s",
        "who: killed: taken by the machine's host 4.00 % of the processors",
        "who: killed: repeated 2.00 times",
    ]


def test_undisturbed_run_on_busy_host_reports_steal(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_steal(monkeypatch, *([50.0] * 5))
    turns = count(1)
    found = database_benchmark(lambda line: None).run_undisturbed(lambda: [Figure("write gap", next(turns), "s")])
    assert [figure.value for figure in found] == [5, 50.0, 4.0]


@pytest.mark.parametrize("metric", ["lost rows", "two primaries"])
def test_undisturbed_run_keeps_invariant_violations(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    stub_steal(monkeypatch, 50.0, 0.0)
    found = database_benchmark(lambda line: None).run_undisturbed(
        lambda: [Figure("write gap", 1, "s"), Figure(metric, 1, "")]
    )
    assert [figure.value for figure in found] == [1, 1, 50.0, 0.0]


def test_processors_report_steal_percent() -> None:
    before = ProcessorTicks.now()
    assert before.total > before.stolen >= 0
    assert ProcessorTicks(before.total + 200, before.stolen + 50).steal_percent_since(before) == 25.0
