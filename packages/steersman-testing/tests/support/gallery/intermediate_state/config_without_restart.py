"""A new configuration is stored, but the pod is never restarted.

After konpyutaika/nifikop#49 (Orange-OpenSource/nifikop#130): the operator updated the ConfigMap, then marked nodes in
the status as out of sync, then restarted them. After a crash between the first two steps, the ConfigMap equaled the
declared one. So no node was marked, and the nodes kept the previous configuration.

Shown by: a crash after the write of the ConfigMap, or a permanent failure of the status write.

The twin stores no mark. An annotation of the pod contains the digest of its configuration. The twin replaces pods
with another digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, owned_metadata, pod, set_spec
from steersman.api.apply import core
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.client import MergePatch
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, resource
from steersman_testing.simulation import World

CONFIG = "gallery.example.com/config"


class FlowSpec(Spec):
    banner: str = ""
    """Text at the top of all pages."""


class FlowStatus(Status):
    config_in_sync: bool = True
    """True if the pod has the stored configuration. Only the faulty operator uses it."""


@resource(group="gallery.example.com", version="v1")
class Flow(Resource[FlowSpec, FlowStatus]):
    """One pod that reads its configuration at its start."""


class FaultyFlowReconciler(RequestReconciler[Flow]):
    async def reconcile(self, request: Request) -> Result:
        flow = await self.client.get(Flow, request)
        written = await self.client.get_or_none(ConfigMap, request)
        if written is None or written.data != config_map(flow).data:
            await self.client.apply(config_map(flow), owner=flow)
            if written is not None:
                flow = await self.client.apply_status(flow, FlowStatus(config_in_sync=False))
        running = await self.client.get_or_none(Pod, request)
        in_sync = flow.status.config_in_sync
        if running is not None and not in_sync:
            await self.client.delete(Pod, request, uid=running.metadata.uid)
        await self.client.apply(pod(owned_metadata(flow)), owner=flow)
        await self.client.apply_status(flow, FlowStatus(config_in_sync=True))
        return Result()


class FlowReconciler(RequestReconciler[Flow]):
    async def reconcile(self, request: Request) -> Result:
        flow = await self.client.get(Flow, request)
        await self.client.apply(config_map(flow), owner=flow)
        wanted = hashlib.sha256(flow.spec.banner.encode()).hexdigest()[:16]
        running = await self.client.get_or_none(Pod, request)
        if running is not None and running.metadata.annotations.get(CONFIG) != wanted:
            await self.client.delete(Pod, request, uid=running.metadata.uid)
        await self.client.apply(pod(owned_metadata(flow, annotations={CONFIG: wanted})), owner=flow)
        await self.client.apply_status(flow, FlowStatus(config_in_sync=True))
        return Result()


def config_map(flow: Flow) -> core.ConfigMap:
    """Return the ConfigMap of the pod."""
    return core.ConfigMap(metadata=owned_metadata(flow), data={"banner": flow.spec.banner})


def setup(reconciler: type[RequestReconciler[Flow]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        (manager.controller(Flow).owns(ConfigMap).owns(Pod).needs(Pod, "delete").complete(reconciler))

    return configure


async def node(world: World[NoExternalSystem]) -> None:
    """Start pods, which report the configuration that they read in their status."""
    while True:
        for found in world.read_all(Pod):
            config = world.read(ConfigMap, found.key)
            if found.status.message is None and config is not None:
                status = {"phase": "Running", "message": f"started with {config.data['banner']}"}
                await world.client.patch(Pod, found.key, MergePatch({"status": status}), subresource="status")
        await world.sleep(1)


async def scenario(world: World[NoExternalSystem]) -> None:
    """Change the banner."""
    await world.client.create(Flow(metadata=object_meta("nifi"), spec=FlowSpec(banner="test")))
    await world.settle()
    await set_spec(world, Flow, "nifi", banner="production")
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """The pod runs with the new banner."""
    running = world.read(Pod, key("nifi"))
    assert running is not None
    assert running.status.message == "started with production"


BUG_CASE = BugCase(
    faulty=setup(FaultyFlowReconciler),
    corrected=setup(FlowReconciler),
    kinds=(Flow,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="simulation",
    report_excerpts=(
        "the process is killed after call 4",
        "APPLY configmaps default/nifi  200, then killed",
        "the operator is restarted",
        "wrong      Pod default/nifi .status.message: 'started with test', not 'started with production'",
        "replay='crash-after:4'",
    ),
    actors=(node,),
)
