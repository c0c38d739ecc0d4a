"""Objects of a cluster that an admission policy or another controller keeps otherwise: left alone, or told once."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from database_support.unit.cluster_harness import NAMES, ClusterHarness
from steersman.api.admissionregistration_v1 import MutatingWebhookConfiguration
from steersman.api.core_v1 import ConfigMap, Service
from steersman.api.events_v1 import Event
from steersman.client import MergePatch
from steersman.meta import decode_builtins
from steersman_databases.api.cluster_common import ServiceSettings, ServicesSettings
from steersman_testing import virtual_time

Operations = list[dict[str, Any]]
BALANCED = ServicesSettings(rw=ServiceSettings(type="LoadBalancer"))
CONFIGURATION = NAMES.local_configuration
PART_OF = "app.kubernetes.io/part-of"


async def admit(world: ClusterHarness, group: str, resource: str, change: Callable[[Any], Operations]) -> None:
    """An admission policy of the cluster that changes what is written."""
    url = f"https://{resource}.example.com:443/"

    async def answer(review: dict[str, Any]) -> dict[str, Any]:
        request = review["request"]
        changes = change(request["object"]) if request.get("object") else []
        response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
        if changes:
            patch = base64.b64encode(json.dumps(changes).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": patch}
        return {**review, "response": response}

    world.server.serve_webhook(url, answer)
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}
    hook = {
        "name": f"{resource}.example.com",
        "clientConfig": {"url": url},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    config = {"metadata": {"name": resource}, "webhooks": [hook]}
    await world.client.create(decode_builtins(config, MutatingWebhookConfiguration))


def writes(world: ClusterHarness, method: str, end: str) -> int:
    return sum(1 for r in world.server.writes if r.method == method and r.path.endswith(end))


def told(world: ClusterHarness, words: str) -> int:
    """How often."""
    return sum((e.series.count if e.series else 1) for e in world.server.read_all(Event) if words in (e.note or ""))


def logs_beside(statefulset: Any) -> Operations:
    if statefulset["spec"].get("volumeClaimTemplates"):
        return []
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "logs"}, "spec": spec}
    return [{"op": "add", "path": "/spec/volumeClaimTemplates", "value": [claim]}]


def ports_named(service: Any) -> Operations:
    return _named(service["spec"].get("ports"), "/spec/ports")


def slice_named(slice_: Any) -> Operations:
    return _named(slice_.get("ports"), "/ports")


def _named(ports: Any, path: str) -> Operations:
    return [
        {"op": "add", "path": f"{path}/{n}/appProtocol", "value": "tcp"}
        for n, port in enumerate(ports or ())
        if port.get("appProtocol") != "tcp"
    ]


def slice_elsewhere(slice_: Any) -> Operations:
    return [
        {"op": "replace", "path": f"/ports/{n}/port", "value": 6432}
        for n, port in enumerate(slice_.get("ports") or ())
        if port["port"] != 6432
    ]


def without_part(secret: Any) -> Operations:
    if PART_OF not in secret["metadata"].get("labels", {}):
        return []
    return [{"op": "remove", "path": f"/metadata/labels/{PART_OF.replace('/', '~1')}"}]


def frozen(config_map: Any) -> Operations:
    if config_map["metadata"]["name"] != CONFIGURATION.name or config_map.get("immutable"):
        return []
    return [{"op": "add", "path": "/immutable", "value": True}]


@virtual_time
async def test_statefulset_with_volume_template_is_kept() -> None:
    world = ClusterHarness()
    await admit(world, "apps", "statefulsets", logs_beside)
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.wait(60)
        assert writes(world, "DELETE", "/statefulsets/orders-0") == 0


@virtual_time
async def test_load_balancer_external_ips_are_kept() -> None:
    """As OpenShift gives them with spec.externalIP.autoAssignCIDRs."""
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, services=BALANCED)
        given = 0

        async def assign() -> None:
            nonlocal given
            while True:
                found = world.server.read(Service, NAMES.service("rw"))
                if found is not None and not found.spec.external_ips:
                    given += 1
                    patch = MergePatch({"spec": {"externalIPs": ["192.0.2.9"]}})
                    await world.client.patch(Service, found.key, patch)
                await world.runtime.clock.sleep(1)

        task = asyncio.create_task(assign())
        await world.wait(300)
        task.cancel()
        assert given == 1


@virtual_time
async def test_closed_load_balancer_is_not_opened() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, services=BALANCED)
        ranges = MergePatch({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}})
        await world.client.patch(Service, NAMES.service("rw"), ranges)
        await world.wait(60)
        found = world.server.read(Service, NAMES.service("rw"))
        assert found is not None and list(found.spec.load_balancer_source_ranges) == ["192.0.2.0/24"]
        assert world.condition("Ready") == "True/AllInstancesReady"


@virtual_time
async def test_defaulted_port_protocol_is_kept() -> None:
    """It says nothing of where clients are led."""
    world = ClusterHarness()
    await admit(world, "", "services", ports_named)
    await admit(world, "discovery.k8s.io", "endpointslices", slice_named)
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = [writes(world, "PATCH", f"/{name}") for name in ("services/orders-rw", "orders-rw-ipv4")]
        await world.wait(300)
        after = [writes(world, "PATCH", f"/{name}") for name in ("services/orders-rw", "orders-rw-ipv4")]
        assert after == before


@pytest.mark.parametrize(
    ("group", "resource", "change", "words"),
    [
        ("", "secrets", without_part, "of Secret orders-admin"),
        ("discovery.k8s.io", "endpointslices", slice_elsewhere, "updated EndpointSlice orders-rw-ipv4"),
    ],
    ids=["labels", "a slice"],
)
@virtual_time
async def test_policy_mutation_is_reported_once(
    group: str, resource: str, change: Callable[[Any], Operations], words: str
) -> None:
    world = ClusterHarness()
    await admit(world, group, resource, change)
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = told(world, words)
        await world.wait(300)
        assert told(world, words) == before


@virtual_time
async def test_immutable_config_map_as_declared_is_kept() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        before = world.server.read(ConfigMap, CONFIGURATION)
        await world.client.patch(ConfigMap, CONFIGURATION, MergePatch({"immutable": True}))
        await world.wait(60)
        after = world.server.read(ConfigMap, CONFIGURATION)
        assert before is not None and after is not None and after.metadata.uid == before.metadata.uid
        assert world.condition("Ready") == "True/AllInstancesReady"


@virtual_time
async def test_config_map_made_immutable_by_policy_is_kept() -> None:
    world = ClusterHarness()
    await admit(world, "", "configmaps", frozen)
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.wait(300)
        assert writes(world, "DELETE", f"/configmaps/{CONFIGURATION.name}") == 0
