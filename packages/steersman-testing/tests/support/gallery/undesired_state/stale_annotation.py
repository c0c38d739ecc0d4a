"""An annotation that is removed from the spec remains.

After rabbitmq/cluster-operator#968 (found by Acto), and similar to k8ssandra/cass-operator#330 and
StarRocks/starrocks-kubernetes-operator#581: the operator merged annotations of the spec into those of the Service, to
keep foreign annotations. It kept removed ones as well.

Shown by: ``annotations: {a: "1"}`` becomes ``annotations: {b: "2"}``.

The twin uses server-side apply, which records the owner of each field. It removes fields that the operator no longer
declares, and keeps fields of other owners.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import controller_reference, key, object_meta, owned_metadata, set_spec, with_ready_condition
from steersman.api.apply import core
from steersman.api.core_v1 import Service, ServicePort, ServiceSpec
from steersman.controller import Request, RequestReconciler, Result, create_or_patch
from steersman.manager import Manager
from steersman.meta import FrozenDict, ObjectMeta, Resource, Spec, Status, resource
from steersman_testing.simulation import World


class ListenerSpec(Spec):
    annotations: FrozenDict[str, str] = FrozenDict()
    """Annotations of the Service."""


@resource(group="gallery.example.com", version="v1")
class Listener(Resource[ListenerSpec, Status]):
    """A Service on port 80."""


class FaultyListenerReconciler(RequestReconciler[Listener]):
    async def reconcile(self, request: Request) -> Result:
        listener = await self.client.get(Listener, request)
        await self.apply_children(listener)
        conditions = with_ready_condition(
            listener, True, "Listening", "the Service is as declared", self.runtime.clock.now()
        )
        status = Status(observed_generation=listener.metadata.generation, conditions=conditions)
        await self.client.apply_status(listener, status)
        return Result()

    async def apply_children(self, listener: Listener) -> None:
        def merged(service: Service) -> Service:
            annotations = FrozenDict({**service.metadata.annotations, **listener.spec.annotations})
            if annotations == service.metadata.annotations:
                return service
            return replace(service, metadata=replace(service.metadata, annotations=annotations))

        metadata = ObjectMeta(
            name=listener.metadata.name,
            namespace=listener.metadata.namespace,
            owner_references=(controller_reference(listener),),
        )
        empty_service = Service(metadata=metadata, spec=ServiceSpec(cluster_ip="None", ports=(ServicePort(port=80),)))
        await create_or_patch(self.client, empty_service, merged)


class ListenerReconciler(FaultyListenerReconciler):
    async def apply_children(self, listener: Listener) -> None:
        metadata = owned_metadata(listener, annotations=listener.spec.annotations)
        spec = core.ServiceSpec(cluster_ip="None", ports=[core.ServicePort(port=80)])
        await self.client.apply(core.Service(metadata=metadata, spec=spec), owner=listener)


def setup(reconciler: type[RequestReconciler[Listener]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        manager.controller(Listener).owns(Service).complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Replace one annotation with another."""
    await world.client.create(Listener(metadata=object_meta("web"), spec=ListenerSpec(annotations=FrozenDict(a="1"))))
    await world.settle()
    await set_spec(world, Listener, "web", annotations={"a": None, "b": "2"})
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """The Service has exactly the annotations of the spec."""
    service = world.read(Service, key("web"))
    assert service is not None
    assert service.metadata.annotations.get("b") == "2"
    assert "a" not in service.metadata.annotations, "an annotation stays that was taken out of the spec"


BUG_CASE = BugCase(
    faulty=setup(FaultyListenerReconciler),
    corrected=setup(ListenerReconciler),
    kinds=(Listener,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    report_excerpts=(
        "convergence: the state differs from that of a new object",
        '1. create with spec.annotations.a="a"',
        "2. remove spec.annotations",
        "Service default/trial metadata.annotations: {'a': 'a'} / missing",
        "replay=",
    ),
)
