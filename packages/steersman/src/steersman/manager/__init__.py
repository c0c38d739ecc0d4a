"""The process: builds the cache, runs controllers, elects a leader, serves health and metrics, stops in order."""

from typing import TYPE_CHECKING, Any

from steersman.manager.leader_election import LeaderElection
from steersman.manager.manager import Manager
from steersman.manager.options import ManagerOptions

if TYPE_CHECKING:
    from steersman.manager.serving.endpoints import ProbeServer

__all__ = ["LeaderElection", "Manager", "ManagerOptions", "ProbeServer"]


def __getattr__(name: str) -> Any:
    # A process without endpoints does without it.
    if name == "ProbeServer":
        from steersman.manager.serving.endpoints import ProbeServer

        return ProbeServer
    raise AttributeError(f"module 'steersman.manager' has no attribute {name!r}")
