"""Simulation: an operator is played through a scenario again and again, each time with something else going wrong.

``simulate(setup, scenario)`` plays it once without faults. That run's calls to the API server, events of watches and
effects outside Kubernetes are the places where something can go wrong. Then the scenario is played once for each
place and each fault that fits it, and at last with several at random:

- the process is killed before or after a call, and comes back at once or much later;
- a call is carried out and its answer lost; it never arrives; it is refused with 409, 429 or 500;
- another actor writes the same object just before a call, so that what was read is old;
- a watch is held back, so that the operator works on an old view of one kind; it breaks; it is lost for long, and
  comes back as a list in which what happened meanwhile is one change, or none;
- another replica takes over while a call is under way, whose write may come after that replica's own.

Every run must end in the state of the run without faults. It must write nothing when it is started with nothing to
do, delete nothing that lives without faults, not ask without bound, and keep the invariants. What fails is told as
a story, with the one line that plays it again.

What is not simulated: several replicas but for the one that takes over, clocks that differ, and an API server that
goes back in time, which the cache guards against by itself.

Sources: Sun et al., "Automatic Reliability Testing for Cluster Management Controllers" (Sieve), OSDI 2022.
"""

from steersman_testing.simulation.fault_points import fault_point
from steersman_testing.simulation.faults import Fault, FaultPlan
from steersman_testing.simulation.report import SimulationReport
from steersman_testing.simulation.simulate import SimulationFailed, simulate
from steersman_testing.simulation.world import World

__all__ = ["Fault", "FaultPlan", "SimulationFailed", "SimulationReport", "World", "fault_point", "simulate"]
