"""The operator with CRDs of prometheus-operator, which it must not change."""

from __future__ import annotations

from typing import Any

from steersman import Client, FrozenDict, MergePatch, ObjectKey, ObjectMeta
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Secret
from steersman.client import JsonPatch
from steersman.meta import unstructured
from steersman_testing import InMemoryApiServer, virtual_time

from monitoring_harness import KEY, monitoring_harness
from monitoring_objects import pod_monitor, prometheus, rule, service_monitor
from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from server_model import BAD_EXPRESSION

GROUP = "monitoring.coreos.com"
COUNTS = ("replicas", "updatedReplicas", "availableReplicas", "unavailableReplicas")
VERSION = "/spec/versions/0"
STATUS = f"{VERSION}/schema/openAPIV3Schema/properties/status"


async def install_foreign_definitions(client: Client) -> None:
    """Change the CRDs to what version 0.85 of prometheus-operator has.

    PodMonitor and PrometheusRule have no status subresource. The status of the other kinds has required fields, and
    lacks observedGeneration.
    """

    async def patch(plural: str, *operations: dict[str, Any]) -> None:
        await client.patch(CustomResourceDefinition, ObjectKey("", f"{plural}.{GROUP}"), JsonPatch(list(operations)))

    for plural in ("podmonitors", "prometheusrules"):
        await patch(plural, {"op": "remove", "path": f"{VERSION}/subresources"})
    for name in ("observedGeneration", "conditions"):
        await patch("servicemonitors", {"op": "remove", "path": f"{STATUS}/properties/{name}"})
    await patch(
        "prometheuses",
        {"op": "add", "path": f"{STATUS}/required", "value": ["paused", *COUNTS]},
    )


@virtual_time
async def test_operator_works_with_foreign_crds(apiserver: InMemoryApiServer) -> None:
    await install_foreign_definitions(Client(apiserver))
    async with monitoring_harness(apiserver) as world:
        await world.user.create(service_monitor("good"))
        await world.user.create(service_monitor("bad", {"interval": "5s", "scrapeTimeout": "9s"}))
        await world.user.create(pod_monitor("worse", {"interval": "5s", "scrapeTimeout": "9s"}))
        await world.user.create(prometheus())
        await world.wait_reconciled()
        await world.wait_available("True")
        assert "serviceMonitor/default/good/0" in world.running_text()
        verdict = await world.accepted(ServiceMonitor, ObjectKey("default", "bad"))
        assert verdict is not None
        assert verdict.status == "False"
        assert len(await world.warnings_of("worse")) == 1
        assert await world.accepted(PodMonitor, ObjectKey("default", "worse")) is None
        await world.user.create(rule("alerts", BAD_EXPRESSION))
        await world.wait_reason("RulesRejected")
        await world.user.delete(Prometheus, KEY)


@virtual_time
async def test_objects_of_prometheus_operator_are_kept(apiserver: InMemoryApiServer) -> None:
    user, other = Client(apiserver, field_manager="user"), Client(apiserver, field_manager="PrometheusOperator")
    owner = await user.create(prometheus())
    metadata = ObjectMeta(name=f"prometheus-{KEY.name}", namespace=KEY.namespace)
    data = FrozenDict({"prometheus.yaml.gz": b"configuration"})
    await other.create(Secret(metadata=metadata, data=data), owner=owner)
    async with monitoring_harness(apiserver) as world:
        await world.wait_until(lambda: world.warnings_of(KEY.name))
        (secret,) = await world.read(Secret)
        assert secret.data == data
        assert await world.read(StatefulSet) == ()
        assert (await world.status()).conditions == ()
        await user.delete(Secret, secret.key)
        await world.wait_reconciled()


@virtual_time
async def test_unknown_fields_are_kept(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus())
        await world.patch_spec(alerting={"alertmanagers": []})
        await world.user.create(service_monitor())
        spec = {"sampleLimit": 1000, "endpoints": [{"port": "web", "proxyUrl": "http://proxy"}]}
        await world.user.patch(ServiceMonitor, ObjectKey("default", "orders"), MergePatch({"spec": spec}))
        await world.wait_reconciled()
        stored = await world.user.get(unstructured(Prometheus.api_resource), KEY)
        assert stored.content["spec"]["alerting"] == {"alertmanagers": ()}
        monitor = await world.user.get(unstructured(ServiceMonitor.api_resource), ObjectKey("default", "orders"))
        assert (monitor.content["spec"]["sampleLimit"], monitor.content["spec"]["endpoints"][0]["proxyUrl"]) == (
            1000,
            "http://proxy",
        )
