"""Testing operators: an API server in memory, virtual time, simulated faults, and the real thing (``envtest``)."""

from steersman.testing.apiserver import InMemoryApiServer, matching
from steersman.testing.mutation import CacheMutated, detect_mutations
from steersman.testing.simulation import SimulationFailed, World, fault_point, simulate
from steersman.testing.virtual_time import (
    VirtualClock,
    VirtualDeadlock,
    VirtualStandstill,
    VirtualTimeLimit,
    VirtualTimeLoop,
    run_virtual,
    virtual_runtime,
    virtual_time,
)

__all__ = [
    "CacheMutated",
    "InMemoryApiServer",
    "SimulationFailed",
    "VirtualClock",
    "VirtualDeadlock",
    "VirtualStandstill",
    "VirtualTimeLimit",
    "VirtualTimeLoop",
    "World",
    "detect_mutations",
    "fault_point",
    "matching",
    "run_virtual",
    "simulate",
    "virtual_runtime",
    "virtual_time",
]
