"""What is measured of the database operator, and where."""

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
from database_support.cluster_engines import POSTGRESQL, Engine
from database_support.cluster_under_test import ClusterUnderTest, Place
from devcluster.target import Target

PrintLine = Callable[[str], None]
_MAX_STEAL_PERCENT = 10.0  # percent of the processors' time that a virtual machine did not get from its host
_MAX_ATTEMPTS = 5
_INVARIANT_METRICS = ("lost rows", "two primaries")


def _run_with_steal(run: Callable[[], Iterable[Figure]]) -> tuple[list[Figure], float]:
    """A run's figures, and how many percent of the processors' time the host took meanwhile."""
    before = ProcessorTicks.now()
    return list(run()), ProcessorTicks.now().steal_percent_since(before)


def _violates_invariant(figures: Iterable[Figure]) -> bool:
    return any(figure.metric in _INVARIANT_METRICS and figure.value > 0 for figure in figures)


@dataclass(frozen=True)
class DatabaseBenchmark:
    """What each scenario works with.

    Attributes:
        target: a cluster on which the operator runs.
        runs: how often each figure is measured.
        databases, users: how many objects are declared where there are many.
        tell: says how far it has come.
        random: for moments that must not keep step with the operator's looks.
        left_out: what of a scenario was not measured.
    """

    target: Target
    runs: int
    databases: int
    users: int
    print_line: PrintLine
    random: random.Random = field(default_factory=lambda: random.Random(7))
    skipped_parts: list[str] = field(default_factory=list[str])

    def skip_part(self, part: str, reason: str) -> None:
        """A part of a scenario cannot be measured here. The rest is shown, and does not replace a whole one."""
        self.skipped_parts.append(part)
        self.print_line(f"{part} is left out, so nothing is kept: {reason}")

    @property
    def operator(self) -> OperatorPod:
        """The operator that is measured."""
        return OperatorPod(self.target)

    @contextmanager
    def temporary_namespace(self, name: str) -> Generator[Place]:
        """A namespace of its own during the block."""
        namespace = f"bench-{name}"
        self._delete(namespace)
        self.target.kubectl("create", "namespace", namespace)
        try:
            yield Place(self.target, namespace)
        finally:
            self._delete(namespace)

    @contextmanager
    def cluster(
        self, name: str, instances: int, engine: Engine = POSTGRESQL, **spec: object
    ) -> Generator[ClusterUnderTest]:
        """A cluster that is Ready, in a namespace of its own."""
        with self.temporary_namespace(name) as place:
            cluster = ClusterUnderTest(place, spec={**engine.small, "instances": instances, **spec}, engine=engine)
            cluster.apply()
            try:
                cluster.wait_ready()
                yield cluster
            except Exception:
                # It goes with its namespace, and what befell it may not come again for hundreds of runs.
                self._print_diagnostics(cluster)
                raise

    def measure_run(
        self, title: str, peer: str, run: Callable[[], Iterable[Figure]], prefix: str = ""
    ) -> list[Measurement]:
        """The figures of an undisturbed run, which are told.

        Args:
            prefix: of their names, where a scenario has several kinds of runs.
        """
        found: list[Measurement] = []
        for figure in self.run_undisturbed(run):
            metric = f"{prefix}{figure.metric}"
            self.print_line(f"{peer}: {metric} {figure.value:.2f} {figure.unit}".rstrip())
            found.append(Measurement(title, peer, metric, figure.value, figure.unit))
        return found

    def run_undisturbed(self, run: Callable[[], Iterable[Figure]]) -> list[Figure]:
        """The figures of a run, which is repeated while the machine's host keeps its processors from it.

        The last of five counts in any case, and so does one in which happened what must not happen on any machine.
        What the host took, and how often the run was repeated, are figures, too.
        """
        repeated = 0
        found, stolen = _run_with_steal(run)
        while stolen > _MAX_STEAL_PERCENT and repeated < _MAX_ATTEMPTS - 1 and not _violates_invariant(found):
            self.print_line(f"the machine's host took {stolen:.0f} % of the processors: measured again")
            repeated += 1
            found, stolen = _run_with_steal(run)
        steal_percent = Figure("taken by the machine's host", stolen, "% of the processors")
        return [*found, steal_percent, Figure("repeated", float(repeated), "times")]

    def _print_diagnostics(self, cluster: ClusterUnderTest) -> None:
        where = Path(tempfile.mkdtemp(prefix="steersman-bench-")) / f"{cluster.name}.tar.gz"
        config = {} if self.target.kubeconfig is None else {"KUBECONFIG": str(self.target.kubeconfig)}
        program = Path(sys.executable).with_name("kubectl-steersman")
        done = subprocess.run(
            [program, "report", cluster.name, f"--namespace={cluster.place.namespace}", f"--file={where}"],
            env={**os.environ, **config},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.print_line(f"what there was of {cluster.name}: {where if done.returncode == 0 else done.stderr}")

    def _delete(self, namespace: str) -> None:
        command = ("delete", "namespace", namespace, "--ignore-not-found", "--timeout=900s")
        self.target.kubectl(*command, seconds=920)


@dataclass(frozen=True)
class DatabaseScenario:
    """One thing that is measured.

    Attributes:
        name: as on the command line.
        title: as in the results.
        measure: all runs, each figure as soon as it is known.
        runs: how often each is measured, unless one says.
    """

    name: str
    title: str
    measure: Callable[[DatabaseBenchmark, str], Iterable[Measurement]]
    runs: int = 5
