"""A Kubernetes API server in memory, for tests: the same answers, no process, no socket, no waiting.

It is trusted as far as the same cases pass on it and on the real server: ``tests/conformance.md`` lists them, and
``make conformance`` counts. What it imitates, what it refuses with 501 and what it leaves out is listed for users in
``docs/reference/in-memory-server.md``.

A request enters at ``server``. ``requests`` reads it, ``access`` allows it, ``verbs``, ``deletion`` and
``subresources`` do it: by ``strategy`` they prepare the object, by ``admission`` they ask the webhooks, by ``writes``
it comes to ``storage``, from where ``listing`` and ``watching`` read. ``builtin`` and ``definitions`` know the kinds,
``schemas`` and ``cel`` judge values, ``fields`` knows who owns what, ``printing`` and ``discovery`` serve kubectl.
"""

from steersman_testing.apiserver.faults import matching
from steersman_testing.apiserver.server import InMemoryApiServer

__all__ = ["InMemoryApiServer", "matching"]
