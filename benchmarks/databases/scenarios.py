"""Scenario type of the database benchmarks and its environment."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.databases.operator_pod import OperatorPod
from benchmarks.measurement import Figure, Measurement, ProcessorTicks
from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import POSTGRESQL, EngineCommands
from devcluster.target import Target

PrintLine = Callable[[str], None]
_MAX_STEAL_PERCENT = 10.0  # CPU time that the host took from a virtual machine
_MAX_ATTEMPTS = 5
_INVARIANT_METRICS = ("lost rows", "two primaries")


def _run_with_steal(run: Callable[[], Iterable[Figure]]) -> tuple[list[Figure], float]:
    """Return a run's measurements and the stolen CPU time in percent."""
    before = ProcessorTicks.now()
    return list(run()), ProcessorTicks.now().steal_percent_since(before)


def _violates_invariant(figures: Iterable[Figure]) -> bool:
    return any(figure.metric in _INVARIANT_METRICS and figure.value > 0 for figure in figures)


@dataclass(frozen=True)
class DatabaseBenchmark:
    """Environment of the scenarios.

    Attributes:
        target: cluster that runs the operator.
        runs: number of runs.
        databases: number of Databases in ``contents``.
        users: number of DatabaseUsers in ``contents``.
        print_line: prints progress.
        random: source of start times that are independent of the operator's inspections.
        skipped_parts: parts of the scenario that were not measured.
    """

    target: Target
    runs: int
    databases: int
    users: int
    print_line: PrintLine
    random: random.Random = field(default_factory=lambda: random.Random(7))
    skipped_parts: list[str] = field(default_factory=list[str])

    def skip_part(self, part: str, reason: str) -> None:
        """Skip a part of a scenario. Its results are not saved."""
        self.skipped_parts.append(part)
        self.print_line(f"{part} is skipped, so the results are not saved: {reason}")

    @property
    def operator(self) -> OperatorPod:
        """Pod of the operator under test."""
        return OperatorPod(self.target)

    @contextmanager
    def temporary_namespace(self, name: str) -> Generator[NamespaceClient]:
        """Create a namespace for the block."""
        namespace = f"bench-{name}"
        self._delete(namespace)
        self.target.kubectl("create", "namespace", namespace)
        try:
            yield NamespaceClient(self.target, namespace)
        finally:
            self._delete(namespace)

    @contextmanager
    def cluster(
        self, name: str, instances: int, engine: EngineCommands = POSTGRESQL, **spec: object
    ) -> Generator[ClusterUnderTest]:
        """Create a cluster in a temporary namespace and wait for Ready."""
        with self.temporary_namespace(name) as place:
            cluster = ClusterUnderTest(place, spec={**engine.small, "instances": instances, **spec}, engine=engine)
            cluster.apply()
            try:
                cluster.wait_ready()
                yield cluster
            except Exception:
                # The namespace is deleted with the cluster, and rare failures are hard to reproduce.
                self._print_diagnostics(cluster)
                raise

    def measure_run(
        self, title: str, peer: str, run: Callable[[], Iterable[Figure]], prefix: str = ""
    ) -> list[Measurement]:
        """Report and yield the measurements of an undisturbed run.

        Args:
            prefix: prefix of the metric names, for scenarios with several kinds of runs.
        """
        found: list[Measurement] = []
        for figure in self.run_undisturbed(run):
            metric = f"{prefix}{figure.metric}"
            self.print_line(f"{peer}: {metric} {figure.value:.2f} {figure.unit}".rstrip())
            found.append(Measurement(title, peer, metric, figure.value, figure.unit))
        return found

    def run_undisturbed(self, run: Callable[[], Iterable[Figure]]) -> list[Figure]:
        """Repeat a run while the host steals too much CPU time.

        The fifth attempt always counts, and so does a run that violates an invariant. The stolen CPU time and the
        number of repetitions are recorded as well.
        """
        repeated = 0
        found, stolen = _run_with_steal(run)
        while stolen > _MAX_STEAL_PERCENT and repeated < _MAX_ATTEMPTS - 1 and not _violates_invariant(found):
            self.print_line(f"the host took {stolen:.0f} % of the CPU time: the run is repeated")
            repeated += 1
            found, stolen = _run_with_steal(run)
        steal_percent = Figure("taken by the machine's host", stolen, "% of the processors")
        return [*found, steal_percent, Figure("repeated", float(repeated), "times")]

    def _print_diagnostics(self, cluster: ClusterUnderTest) -> None:
        where = Path(tempfile.mkdtemp(prefix="steersman-bench-")) / f"{cluster.name}.tar.gz"
        config = {} if self.target.kubeconfig is None else {"KUBECONFIG": str(self.target.kubeconfig)}
        program = Path(sys.executable).with_name("kubectl-steersman")
        done = subprocess.run(
            [program, "report", cluster.name, f"--namespace={cluster.namespace_client.namespace}", f"--file={where}"],
            env={**os.environ, **config},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.print_line(f"diagnostics of {cluster.name}: {where if done.returncode == 0 else done.stderr}")

    def _delete(self, namespace: str) -> None:
        command = ("delete", "namespace", namespace, "--ignore-not-found", "--timeout=900s")
        self.target.kubectl(*command, seconds=920)


@dataclass(frozen=True)
class DatabaseScenario:
    """A database scenario.

    Attributes:
        name: name on the command line.
        title: name in the results.
        measure: generator that performs all runs.
        runs: default number of runs.
    """

    name: str
    title: str
    measure: Callable[[DatabaseBenchmark, str], Iterable[Measurement]]
    runs: int = 5
