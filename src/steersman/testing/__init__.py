"""Testing operators: an API server in memory, virtual time, and the real thing without a cluster (``envtest``)."""

from steersman.testing.apiserver import InMemoryApiServer, matching
from steersman.testing.mutation import CacheMutated, detect_mutations
from steersman.testing.virtual_time import (
    VirtualClock,
    VirtualDeadlock,
    VirtualTimeLimit,
    VirtualTimeLoop,
    run_virtual,
    virtual_runtime,
    virtual_time,
)

__all__ = [
    "CacheMutated",
    "InMemoryApiServer",
    "VirtualClock",
    "VirtualDeadlock",
    "VirtualTimeLimit",
    "VirtualTimeLoop",
    "detect_mutations",
    "matching",
    "run_virtual",
    "virtual_runtime",
    "virtual_time",
]
