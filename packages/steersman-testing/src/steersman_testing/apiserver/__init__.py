"""A Kubernetes API server in memory, for tests. It needs no process, no socket and no waiting.

``server`` has ``InMemoryApiServer``, a ``Transport`` that handles requests within the test's process. ``requests``
parses the path, the query and the body, and ``access`` authenticates and authorizes the user. ``dispatch`` selects
the handler: ``verbs`` and ``deletion`` for objects, ``subresources`` for scale, eviction, token, log and resize.

``strategy`` prepares an object for create and update and validates it, as the strategies of k8s.io/apiserver do.
``builtin`` has the rules of built-in kinds. ``definitions`` has those of CustomResourceDefinitions and their custom
resources, and ``schemas`` validates values against structural schemas. ``admission`` runs plugins and webhooks.
``fields`` implements patches, managed fields and server-side apply.

``writes`` stores objects in ``storage``, which also keeps the history for ``lists`` and ``watches``. ``controllers``
runs the garbage collector and the other controllers after each write. ``discovery`` and ``kubectl`` serve clients
that discover kinds and print objects.

Trust in the server comes from conformance cases, which run on it and on a real API server. ``tests/conformance.md``
lists them, and ``make conformance`` counts differences. ``docs/reference/in-memory-server.md`` lists for users what
the server implements, what it rejects with 501 and what it omits.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman_testing.apiserver.faults import matching
    from steersman_testing.apiserver.server import InMemoryApiServer

__all__ = ["InMemoryApiServer", "matching"]

_MODULES = {"InMemoryApiServer": "server", "matching": "faults"}


def __getattr__(name: str) -> Any:
    # Lazy, because the modules of this package import each other by its name.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
