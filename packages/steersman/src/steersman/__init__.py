'''Write Kubernetes operators in typed, async Python.

A kind is a class, a controller is a coroutine, and this is a whole operator::

    import asyncio
    from typing import Annotated

    from steersman import Field, Manager, Reconciler, Request, Resource, Result, Spec, Status
    from steersman import ObjectMetaApply, connect, load_config, resource
    from steersman.api.apply.core_v1 import ConfigMapApply
    from steersman.api.core_v1 import ConfigMap

    class GreetingSpec(Spec):
        name: Annotated[str, Field(min_length=1)]
        """Who is greeted."""

    @resource(group="example.com", version="v1")
    class Greeting(Resource[GreetingSpec, Status]):
        """A friendly word, kept in a ConfigMap."""

    class Greeter(Reconciler[Greeting]):
        async def reconcile(self, request: Request) -> Result:
            greeting = await self.client.get(Greeting, request)  # from the cache; a deleted object ends here, quietly
            metadata = ObjectMetaApply(name=request.name, namespace=request.namespace)
            words = ConfigMapApply(metadata=metadata, data={"words": f"Hello {greeting.spec.name}"})
            await self.client.apply(words, owner=greeting)
            return Result()

    def setup(manager: Manager) -> None:
        manager.controller(Greeting).owns(ConfigMap).rbac(ConfigMap, "create", "patch").complete(Greeter)

    async def main() -> None:
        async with connect(load_config()) as transport:
            manager = Manager(transport)
            setup(manager)
            await manager.run_until_signalled()

    if __name__ == "__main__":
        asyncio.run(main())

``steersman manifests greeting`` prints the CustomResourceDefinition. The rooms, in the way of the data:

- ``steersman.api``: the built-in kinds, one module a group-version, and what to send in server-side apply.
- ``steersman.client``: configuration, transport, and verbs on objects; good for scripts too.
- ``steersman.cache``: list and watch, kept in step with the API server whatever happens.
- ``steersman.controller``: what triggers a reconcile, queue, workers, reconcilers, finalizers, Events.
- ``steersman.manager``: the process: leader election, signals, probes, metrics, and a command's flags for them.
- ``steersman.meta`` and ``steersman.crd``: the vocabulary of objects, and the schemas that follow from classes.
- ``steersman_cli.codegen``: the way back, classes from the definitions of somebody else's kinds.
- ``steersman.rbac``: roles from what controllers declare.
- ``steersman.webhook``: what the API server asks about writes, and how versions of a kind become each other.
- ``steersman.errors``: every exception, as one tree.
- ``steersman.observability``: logs, metrics, and the seams for clock, randomness and tasks.
- ``steersman_testing``: an API server in memory and virtual time, for tests in milliseconds; and a real one.
- ``steersman_cli``: the ``steersman`` command.

The names below are imported from their rooms at first use, so ``import steersman`` costs next to nothing.
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
        ObjectMetaApply,
        PrinterColumn,
        Quantity,
        Resource,
        Rule,
        Scale,
        Spec,
        Status,
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
    "ObjectMetaApply",
    "PrinterColumn",
    "Quantity",
    "RateLimit",
    "ReconcileOutcome",
    "Reconciler",
    "ReconcilerContext",
    "Request",
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
    "set_condition",
]

# Asked in this order, from the cheapest to import to the dearest.
_ROOMS = ("meta", "errors", "client", "cache", "controller", "manager")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for room in _ROOMS:
            module = import_module(f"steersman.{room}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'steersman' has no attribute {name!r}")
