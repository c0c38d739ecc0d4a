"""A Kubernetes API server in memory, for tests: the same answers, no process, no socket, no waiting."""

from steersman.testing.apiserver.faults import matching
from steersman.testing.apiserver.server import InMemoryApiServer

__all__ = ["InMemoryApiServer", "matching"]
