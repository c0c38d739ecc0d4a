"""The process: builds the cache, runs controllers, serves health and metrics, stops in order."""

from steersman.manager.manager import Manager, ManagerOptions
from steersman.manager.server import ProbeServer

__all__ = ["Manager", "ManagerOptions", "ProbeServer"]
