"""The rollback of a partial upgrade is ignored.

After pingcap/tidb-operator#5204: a change was reverted while some members already had it. The operator compared the
target revision with the last complete one. Both were equal, so it left the members unchanged.

Shown by: ``version`` becomes one that the second of two steps rejects, and then the previous one again.

The twin keeps no record of its last actions. Each reconcile applies each step. This is cheap, since ``apply`` sends
no request for an unchanged object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, owned_metadata, set_spec, with_ready_condition
from steersman.api.apply import core
from steersman.api.core_v1 import ConfigMap, Service
from steersman.controller import ReconcileOutcome, Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, resource
from steersman_testing.simulation import World
from steersman_testing.transitions import Hints

VERSION = "app.kubernetes.io/version"


class ProxySpec(Spec):
    version: str = "1.0"
    """Part of the configuration and of a label, which restricts its characters."""


class ProxyStatus(Status):
    version: str = ""
    """Version of the last complete rollout."""


@resource(group="gallery.example.com", version="v1", plural="proxies")
class Proxy(Resource[ProxySpec, ProxyStatus]):
    """A ConfigMap and a Service, applied in this order."""


class ProxyReconciler(RequestReconciler[Proxy]):
    async def reconcile(self, request: Request) -> Result:
        proxy = await self.client.get(Proxy, request)
        version = proxy.spec.version
        await self.client.apply(
            core.ConfigMap(metadata=owned_metadata(proxy), data={"version": version}), owner=proxy
        )
        spec = core.ServiceSpec(cluster_ip="None", ports=[core.ServicePort(port=80)])
        await self.client.apply(
            core.Service(metadata=owned_metadata(proxy, labels={VERSION: version}), spec=spec), owner=proxy
        )
        return Result()

    async def update_status(self, request: Request, outcome: ReconcileOutcome) -> None:
        proxy = await self.client.get(Proxy, request)
        done = outcome.error is None
        reason, message = ("RolledOut", proxy.spec.version) if done else ("RollingOutFails", str(outcome.error))
        former = proxy.status.version
        status = ProxyStatus(
            observed_generation=proxy.metadata.generation,
            conditions=with_ready_condition(proxy, done, reason, message, self.runtime.clock.now()),
            version=proxy.spec.version if done else former,
        )
        await self.client.apply_status(proxy, status)


class FaultyProxyReconciler(ProxyReconciler):
    async def reconcile(self, request: Request) -> Result:
        proxy = await self.client.get(Proxy, request)
        if proxy.status.version == proxy.spec.version:
            return Result()
        return await super().reconcile(request)


def setup(reconciler: type[RequestReconciler[Proxy]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        (manager.controller(Proxy).owns(ConfigMap).owns(Service).complete(reconciler))

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Set an invalid version, then the previous one."""
    await world.client.create(Proxy(metadata=object_meta("edge"), spec=ProxySpec()))
    await world.settle()
    await set_spec(world, Proxy, "edge", version="2.0 (beta)")
    await world.sleep(60)
    await set_spec(world, Proxy, "edge", version="1.0")
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """All objects have the previous version."""
    config, service = world.read(ConfigMap, key("edge")), world.read(Service, key("edge"))
    assert config is not None and service is not None
    assert (config.data["version"], service.metadata.labels[VERSION]) == ("1.0", "1.0")


BUG_CASE = BugCase(
    faulty=setup(FaultyProxyReconciler),
    corrected=setup(ProxyReconciler),
    kinds=(Proxy,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    report_excerpts=(
        "rollback: the state differs after a rollback to the last good spec",
        '2. set a bad value: spec.version="2.0 (beta)"',
        "3. roll back to the last good spec",
        'ConfigMap default/trial data.version: "1.0" / "2.0 (beta)"',
        "replay=",
    ),
    hints=Hints(bad={"spec.version": ["2.0 (beta)"]}),
)
