"""Prometheus with real servers in the cluster of the kubeconfig.

Run ``make install`` and ``make deploy IMG=…`` first. The image of Prometheus is that of images.toml, or of quay.io.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from steersman import Client, FrozenDict, MergePatch, ObjectKey, ObjectMeta, connect, load_config
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import Namespace, Pod
from steersman.errors import NotFound, SteersmanError

from monitoring_harness import PrometheusDriver
from monitoring_objects import ARTICLE
from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor

pytestmark = pytest.mark.e2e
OPERATOR = ObjectKey("monitoring-operator-system", "monitoring-operator")
SAMPLES = Path(__file__).parents[2] / "config/samples"
TIMEOUT_SECONDS = 300.0


@asynccontextmanager
async def temporary_namespace(client: Client) -> AsyncGenerator[str]:
    """Create a namespace under the restricted Pod Security Standard."""
    name = f"e2e-prometheus-{uuid.uuid4().hex[:8]}"
    labels = FrozenDict({"pod-security.kubernetes.io/enforce": "restricted"})
    await client.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    try:
        yield name
    finally:
        await client.delete(Namespace, ObjectKey("", name))
        # Without the operator, which may be undeployed next, its finalizer would keep the namespace.
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (await client.list(Prometheus, namespace=name)).items:
                await asyncio.sleep(1)


async def kubectl(*arguments: str, content: str = "") -> str:
    """Run kubectl and return its output."""
    process = await asyncio.create_subprocess_exec("kubectl", *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    stdout, stderr = await process.communicate(content.encode())
    assert process.returncode == 0, stderr.decode()
    return stdout.decode()


async def apply(namespace: str, *manifests: str) -> None:
    """Apply manifests in a namespace, with the namespaces of their subjects."""
    text = "\n---\n".join(manifests).replace("namespace: default", f"namespace: {namespace}")
    await kubectl("apply", "--namespace", namespace, "--filename", "-", content=text)


async def query(server: Pod, path: str) -> Any:
    """Return the data of a response of Prometheus, through the API server."""
    where = f"/api/v1/namespaces/{server.metadata.namespace}/pods/{server.metadata.name}:9090/proxy"
    return json.loads(await kubectl("get", "--raw", where + path))["data"]


@pytest.mark.requirement("overview/prometheus")
async def test_article_prometheus_scrapes_and_reloads() -> None:
    try:
        config = load_config()
    except SteersmanError as error:
        pytest.skip(f"no cluster: {error}")
    async with connect(config) as transport:
        client = Client(transport)
        try:
            await client.get(Deployment, OPERATOR)
        except NotFound:
            pytest.skip("the operator is not deployed: make install deploy IMG=…")
        async with temporary_namespace(client) as namespace:
            await run_lifecycle(PrometheusDriver(client, ObjectKey(namespace, "prometheus")))


async def run_lifecycle(driver: PrometheusDriver) -> None:
    client, namespace = driver.user, driver.key.namespace
    await apply(namespace, ARTICLE)
    missing = await driver.wait_reason("ServiceAccountMissing", TIMEOUT_SECONDS)
    assert f"{namespace}/prometheus" in (missing.message or "")
    await apply(namespace, (SAMPLES / "service_account.yaml").read_text())
    await driver.wait_reconciled(TIMEOUT_SECONDS)
    await driver.wait_available("True", TIMEOUT_SECONDS)
    (server,) = await driver.pods()

    await apply(namespace, (SAMPLES / "monitoring_v1_servicemonitor.yaml").read_text())
    target = await wait_target(driver, server)
    assert {name: target["labels"][name] for name in ("namespace", "service", "pod", "container", "endpoint")} == {
        "namespace": namespace,
        "service": "prometheus-prometheus",
        "pod": "prometheus-prometheus-0",
        "container": "prometheus",
        "endpoint": "web",
    }
    await driver.wait_reconciled(TIMEOUT_SECONDS)

    await driver.patch_spec(ruleSelector={})
    rule = yaml.safe_load((SAMPLES / "monitoring_v1_prometheusrule.yaml").read_text())
    rule["spec"]["groups"][0]["rules"][0]["expr"] = "up =="
    await apply(namespace, yaml.safe_dump(rule))
    rejected = await driver.wait_reason("RulesRejected", TIMEOUT_SECONDS)
    assert "could not parse expression" in (rejected.message or "")
    await apply(namespace, (SAMPLES / "monitoring_v1_prometheusrule.yaml").read_text())
    await driver.wait_reconciled(TIMEOUT_SECONDS)
    groups = (await query(server, "/api/v1/rules"))["groups"]
    assert [each["name"] for group in groups for each in group["rules"]] == ["TargetDown"]

    # All changes were loaded by the first processes, which no rejection ends.
    (same,) = await driver.pods()
    assert same.metadata.uid == server.metadata.uid
    assert [status.restart_count for status in same.status.container_statuses] == [0, 0]
    broken = MergePatch({"spec": {"endpoints": [{"port": "web", "interval": "5s", "scrapeTimeout": "9s"}]}})
    await client.patch(ServiceMonitor, driver.key, broken)

    async def is_rejected() -> bool:
        verdict = await driver.accepted(ServiceMonitor, driver.key)
        return verdict is not None and verdict.status == "False"

    await driver.wait_until(is_rejected, TIMEOUT_SECONDS)


async def wait_target(driver: PrometheusDriver, server: Pod) -> dict[str, Any]:
    """Wait until the server scrapes itself, and return the target."""
    found: list[dict[str, Any]] = []

    async def is_up() -> bool:
        targets = (await query(server, "/api/v1/targets"))["activeTargets"]
        found[:] = [target for target in targets if target["health"] == "up"]
        return bool(found)

    await driver.wait_until(is_up, TIMEOUT_SECONDS)
    return found[0]
