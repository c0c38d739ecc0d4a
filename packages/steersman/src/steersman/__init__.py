'''Write Kubernetes operators in typed, async Python.

A kind is a class, a controller is a coroutine, and this is a whole operator::

    from typing import Annotated

    from steersman import Field, Manager, Reconciler, Resource, Spec, Status, resource, run
    from steersman.api.apply import core, meta
    from steersman.api.core_v1 import ConfigMap

    class GreetingSpec(Spec):
        name: Annotated[str, Field(min_length=1)]
        """Name of the person to greet."""

    @resource(group="example.com", version="v1")
    class Greeting(Resource[GreetingSpec, Status]):
        """A greeting, stored in a ConfigMap."""

    class Greeter(Reconciler[Greeting]):
        async def reconcile(self, greeting: Greeting) -> None:
            metadata = meta.ObjectMeta(name=greeting.metadata.name, namespace=greeting.metadata.namespace)
            words = core.ConfigMap(metadata=metadata, data={"words": f"Hello {greeting.spec.name}"})
            await self.client.apply(words, owner=greeting)

    def setup(manager: Manager) -> None:
        manager.controller(Greeting).owns(ConfigMap).complete(Greeter)

    if __name__ == "__main__":
        run(setup, name="greeting")

``steersman manifests greeting`` prints the CustomResourceDefinition.

**Manager.** A Manager runs the controllers, caches and servers of one process. It handles leader election, signals,
health probes and metrics. Every operator creates one, and it creates the shared dependencies such as clients and
caches. See ``steersman.manager``.

**Controller.** A Controller watches a kind and the objects that it owns, and puts the key of the affected object into
a queue. Its workers take keys from the queue and call the Reconciler. Failed keys are retried with exponential
back-off. See ``steersman.controller``.

**Reconciler.** A Reconciler compares the desired state of one object with the observed state, and makes them equal.
It receives the current object, not the event, and must be idempotent. It declares child objects by server-side apply
and reports to users by status, conditions and Events.

**Client and cache.** Reads of a CachedClient come from informers, which list and watch the API server. Writes go to
the API server, and later reads of the cache contain them. Scripts use a Client or a SyncClient without a cache. See
``steersman.cache`` and ``steersman.client``.

**Kinds.** A custom resource is a Python class with a spec and a status. ``steersman.api`` has the built-in kinds and
``steersman.meta`` the base classes. ``steersman_manifests`` generates CustomResourceDefinitions and RBAC roles from
classes and controllers.

**Webhooks.** Webhooks default, validate and convert objects. ``steersman.webhook`` serves them and rotates their
certificates.

**Tests.** ``steersman_testing`` has an API server in memory, virtual time, fault simulation, and envtest for a real
API server.

**Command.** ``steersman_cli`` scaffolds operators, generates classes from CRDs, and builds charts and bundles.

``steersman.errors`` defines all exceptions, and ``steersman.observability`` logs, metrics, clock and tasks.

The names below are imported from their packages at first use, so ``import steersman`` is fast.
'''

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.cache import CachedClient
    from steersman.client import (
        Client,
        JsonPatch,
        MergePatch,
        RateLimit,
        RetryPolicy,
        SyncClient,
        connect,
        load_config,
        retry_on_conflict,
    )
    from steersman.controller import (
        Channel,
        EventRecorder,
        ReconcileOutcome,
        Reconciler,
        ReconcilerContext,
        Request,
        RequestReconciler,
        Result,
        Ticker,
        add_finalizer,
        current_reconcile,
        generation_changed,
        has_label,
        labels_changed,
        referenced_by,
        remove_finalizer,
    )
    from steersman.entry_point import run
    from steersman.errors import ApiError, Conflict, NotFound, SteersmanError, TerminalError
    from steersman.manager import Manager, ManagerOptions
    from steersman.meta import (
        Condition,
        Field,
        FrozenDict,
        FrozenStruct,
        Object,
        ObjectKey,
        ObjectMeta,
        PrinterColumn,
        Quantity,
        Resource,
        Rule,
        Scale,
        Spec,
        Status,
        condition_transitions,
        find_condition,
        is_true,
        resource,
        set_condition,
    )

__all__ = [
    "ApiError",
    "CachedClient",
    "Channel",
    "Client",
    "Condition",
    "Conflict",
    "EventRecorder",
    "Field",
    "FrozenDict",
    "FrozenStruct",
    "JsonPatch",
    "Manager",
    "ManagerOptions",
    "MergePatch",
    "NotFound",
    "Object",
    "ObjectKey",
    "ObjectMeta",
    "PrinterColumn",
    "Quantity",
    "RateLimit",
    "ReconcileOutcome",
    "Reconciler",
    "ReconcilerContext",
    "Request",
    "RequestReconciler",
    "Resource",
    "Result",
    "RetryPolicy",
    "Rule",
    "Scale",
    "Spec",
    "Status",
    "SteersmanError",
    "SyncClient",
    "TerminalError",
    "Ticker",
    "add_finalizer",
    "condition_transitions",
    "connect",
    "current_reconcile",
    "find_condition",
    "generation_changed",
    "has_label",
    "is_true",
    "labels_changed",
    "load_config",
    "referenced_by",
    "remove_finalizer",
    "resource",
    "retry_on_conflict",
    "run",
    "set_condition",
]

# In the order of their import time.
_PACKAGES = ("meta", "errors", "client", "cache", "controller", "manager")


def __getattr__(name: str) -> Any:
    if name == "run":
        # First, and without the packages: it handles SIGTERM during their import.
        return import_module("steersman.entry_point").run
    if name in __all__:
        for package in _PACKAGES:
            module = import_module(f"steersman.{package}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'steersman' has no attribute {name!r}")
