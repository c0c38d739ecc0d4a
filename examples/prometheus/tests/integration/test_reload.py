"""The reloader with a real Prometheus: checks, reloads and rejections."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path

import pytest

from monitoring_objects import prometheus, rule, service_monitor
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.configuration import DeclaredConfiguration, Inputs, build
from monitoring_operator.resources import PORT, configuration_secret
from monitoring_operator.servers import HttpServers, Rejection, ServerReport
from prometheus_processes import PrometheusProcesses, program_directory

UID, NAME = "uid", "prometheus-0"
BAD = rule("bad", "up ==")


class Server:
    """One Prometheus with its reloader."""

    def __init__(self, processes: PrometheusProcesses) -> None:
        self.processes = processes
        self.ip = ""
        self._files: Mapping[str, bytes] = {}

    async def start(self, *monitors: ServiceMonitor, rules: Sequence[PrometheusRule] = ()) -> DeclaredConfiguration:
        declared = self._declare(monitors, rules)
        self.ip = await self.processes.start_server(UID, NAME, self._files)
        return declared

    async def change(self, *monitors: ServiceMonitor, rules: Sequence[PrometheusRule] = ()) -> DeclaredConfiguration:
        declared = self._declare(monitors, rules)
        await self.sync()
        return declared

    async def change_to_unknown_field(self, *monitors: ServiceMonitor) -> DeclaredConfiguration:
        """Write a configuration that Prometheus rejects although the operator accepts it."""
        declared = self._declare(monitors, ())
        name = "prometheus.yaml.gz"
        text = gzip.decompress(self._files[name])
        assert b"scrape_configs" in text
        self._files = {**self._files, name: gzip.compress(text.replace(b"scrape_configs", b"scrape_targets", 1))}
        await self.sync()
        return declared

    async def sync(self) -> None:
        await self.processes.sync_server(UID, NAME, self._files)

    async def wait_report(self, matches: Callable[[ServerReport], bool]) -> ServerReport:
        async with asyncio.timeout(20):
            while not matches(report := await HttpServers(PORT).report(self.ip)):
                await asyncio.sleep(0.05)
        return report

    async def wait_rejection(self, revision: str) -> Rejection:
        """Return the rejection of a file of a revision."""
        report = await self.wait_report(lambda r: revision in {each.revision for each in r.rejections})
        (rejection,) = report.rejections
        return rejection

    def _declare(self, monitors: Sequence[ServiceMonitor], rules: Sequence[PrometheusRule]) -> DeclaredConfiguration:
        declared = build(Inputs(prometheus=prometheus(), service_monitors=monitors, rules=rules, contents={}))
        data = configuration_secret(prometheus(), declared).data
        assert isinstance(data, Mapping)
        self._files = data
        return declared


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Server]:
    processes = PrometheusProcesses(tmp_path, program_directory())
    yield Server(processes)
    await processes.stop_all()


async def test_change_is_reloaded_without_restart(server: Server) -> None:
    first = await server.start(service_monitor("one"))
    assert await server.wait_report(lambda r: r.is_applied) == ServerReport(revision=first.revision)
    second = await server.change(service_monitor("one"), service_monitor("two"), rules=[rule()])
    await server.wait_report(lambda r: r == ServerReport(revision=second.revision))


async def test_invalid_rules_do_not_block_others(server: Server) -> None:
    await server.start(service_monitor("one"))
    declared = await server.change(service_monitor("two"), rules=[rule("good"), BAD])
    rejection = await server.wait_rejection(declared.revision)
    assert rejection.file.startswith("rules-default_bad-")
    assert "could not parse expression" in rejection.reason
    report = await HttpServers(PORT).report(server.ip)
    assert (report.revision, report.is_applied) == (declared.revision, True)
    fixed = await server.change(service_monitor("two"), rules=[rule("good"), rule("bad")])
    await server.wait_report(lambda r: r == ServerReport(revision=fixed.revision))


async def test_server_starts_without_invalid_rules(server: Server) -> None:
    declared = await server.start(service_monitor("one"), rules=[BAD])
    assert "could not parse" in (await server.wait_rejection(declared.revision)).reason
    await server.wait_report(lambda r: r.revision == declared.revision and r.is_applied)


async def test_rejected_configuration_keeps_previous_one(server: Server) -> None:
    first = await server.start(service_monitor("s"))
    declared = await server.change_to_unknown_field(service_monitor("s"), service_monitor("r"))
    rejection = await server.wait_rejection(declared.revision)
    assert rejection.file == "prometheus.yaml"
    assert "scrape_targets" in rejection.reason
    report = await HttpServers(PORT).report(server.ip)
    assert (report.revision, report.is_applied) == (first.revision, True)
    third = await server.change(service_monitor("s"), service_monitor("t"))
    await server.wait_report(lambda r: r == ServerReport(revision=third.revision))


async def test_reload_continues_after_killed_reloader(server: Server) -> None:
    await server.start(service_monitor("one"))
    for number in range(6):
        declared = await server.change(service_monitor(f"monitor-{number}"), rules=[rule(f"rules-{number}")])
        await asyncio.sleep(0.04 * number)
        await server.processes.kill_reloader(UID)
        await server.sync()
        await server.wait_report(lambda r, revision=declared.revision: r == ServerReport(revision=revision))
