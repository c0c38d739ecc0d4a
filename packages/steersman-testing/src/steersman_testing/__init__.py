"""Tests for operators: in-memory API server, virtual time, fault simulation and envtest."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman_testing.apiserver import InMemoryApiServer, matching
    from steersman_testing.mutation import CacheMutated, detect_mutations
    from steersman_testing.simulation import SimulationFailed, World, fault_point, simulate
    from steersman_testing.virtual_clock import (
        VirtualClock,
        VirtualDeadlock,
        VirtualLivelock,
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
    "VirtualLivelock",
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

_MODULES = ("apiserver", "mutation", "simulation", "virtual_clock")


def __getattr__(name: str) -> Any:
    # Lazy, because pytest always imports the package for its plugin.
    if name in __all__:
        for module in _MODULES:
            value = getattr(import_module(f"steersman_testing.{module}"), name, None)
            if value is not None:
                return value
    raise AttributeError(f"module 'steersman_testing' has no attribute {name!r}")
