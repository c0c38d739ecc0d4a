"""Fault simulation: repeats a scenario under every single fault.

``simulate(setup, scenario)`` runs the scenario once without faults. This reference run records each call to the API
server, each watch event and each external effect. Then the scenario runs once for each recorded place and each fault
that applies to it, and finally with random combinations of faults:

- The process is killed before or after a call, and restarts after one second or after minutes.
- A request never arrives, its response is lost, or the API server rejects it with 409, 429 or 500.
- Another client writes the same object immediately before a call, so that the cached object is stale.
- A watch is delayed, so that the operator works with a stale cache. A watch disconnects. A watch expires and the
  reflector relists, so that several changes become one event, or none.
- Another replica becomes the leader during a call, and the call may arrive after that replica's own writes.

Each run must end in the state of the reference run. After a restart with nothing to do, the operator must not write.
It must not delete objects that survive without faults, send requests without bound, or violate an invariant. A
failure is reported with an excerpt of the trace and with the argument that replays it.

Not simulated: more than two replicas, clock skew, and an API server restored from a backup, which the cache handles
itself.

Source: Sun et al., "Automatic Reliability Testing for Cluster Management Controllers" (Sieve), OSDI 2022.
"""

from steersman_testing.simulation.fault_points import fault_point
from steersman_testing.simulation.faults import Fault, FaultPlan
from steersman_testing.simulation.report import SimulationReport
from steersman_testing.simulation.simulate import SimulationFailed, simulate
from steersman_testing.simulation.world import World

__all__ = ["Fault", "FaultPlan", "SimulationFailed", "SimulationReport", "World", "fault_point", "simulate"]
