"""Prometheus on the in-memory API server, with models as servers."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from random import Random
from typing import Any

import pytest
import yaml
from steersman import FrozenDict, MergePatch, ObjectKey, ObjectMeta
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Namespace, Pod, Secret
from steersman.errors import ApiError, ApiStatus, BadRequest, Forbidden, InternalError, Invalid, NotFound
from steersman.meta import decode_builtins
from steersman_testing import InMemoryApiServer, virtual_time
from steersman_testing.apiserver import matching

from certificate_files import new_pair
from monitoring_harness import KEY, monitoring_harness
from monitoring_objects import ARTICLE, pod_monitor, prometheus, rule, service_monitor
from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.configuration import DeclaredConfiguration, Inputs, build
from server_model import BAD_EXPRESSION, BAD_PARAMETER

WORKLOAD = ObjectKey(KEY.namespace, "prometheus-prometheus")


@pytest.mark.requirement("overview/prometheus")
@virtual_time
async def test_article_manifest_becomes_reconciled(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        manifest = yaml.safe_load(ARTICLE)
        manifest["metadata"]["namespace"] = KEY.namespace
        await world.user.create(service_monitor("selected"))
        await world.user.create(
            decode_builtins(
                {
                    "metadata": {"name": "other", "namespace": "default", "labels": {"team": "backend"}},
                    "spec": {"selector": {}, "endpoints": [{"port": "web"}]},
                },
                ServiceMonitor,
            )
        )
        await world.create_service_account("prometheus")
        await world.user.create(decode_builtins(manifest, Prometheus))
        status = await world.wait_reconciled()
        await world.wait_available("True")
        jobs = [job["job_name"] for job in yaml.safe_load(world.running_text())["scrape_configs"]]
        assert jobs == ["serviceMonitor/default/selected/0"]
        assert (status.replicas, status.updated_replicas) == (1, 1)
        (pod,) = await world.pods()
        assert pod.spec.service_account_name == "prometheus"
        assert pod.spec.containers[0].resources is not None
        assert pod.spec.containers[0].resources.requests == {"memory": "400Mi"}


@virtual_time
async def test_missing_service_account_is_reported(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus(serviceAccountName="absent"))
        condition = await world.wait_reason("ServiceAccountMissing")
        assert "ServiceAccount default/absent does not exist. Create it" in condition.message
        await world.wait_available("False")
        await world.create_service_account("absent")
        await world.wait_reconciled()


@virtual_time
async def test_monitor_change_is_loaded_without_new_pods(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus(replicas=2))
        await world.wait_reconciled()
        before = {pod.metadata.uid for pod in await world.pods()}
        generation = (await world.user.get(StatefulSet, WORKLOAD)).metadata.generation
        await world.user.create(pod_monitor("late"))
        await world.wait_reason("ReloadPending")
        await world.wait_reconciled()
        assert "podMonitor/default/late/0" in world.running_text()
        assert {pod.metadata.uid for pod in await world.pods()} == before
        assert (await world.user.get(StatefulSet, WORKLOAD)).metadata.generation == generation
        await world.user.delete(PodMonitor, ObjectKey("default", "late"))
        await world.wait_reason("ReloadPending")
        await world.wait_reconciled()
        assert "late" not in world.running_text()


@virtual_time
async def test_reconciled_is_false_until_every_replica_reloads(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus(replicas=2))
        await world.wait_reconciled()
        world.servers.frozen = True
        await world.user.create(service_monitor())
        condition = await world.wait_reason("ReloadPending")
        assert condition.message.startswith("prometheus-prometheus-0 has not loaded revision ")
        world.servers.frozen = False
        await world.wait_reconciled()


@virtual_time
async def test_unreachable_server_is_reported(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus())
        await world.wait_reconciled()
        (ip,) = [pod.status.pod_ip for pod in await world.pods()]
        assert ip is not None
        world.servers.unreachable.add(ip)
        await world.wait_reason("ServerUnreachable")
        world.servers.unreachable.clear()
        await world.wait_reconciled()


@virtual_time
async def test_invalid_monitor_reports_itself_only(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        good, bad = service_monitor("good"), service_monitor("bad", {"interval": "5s", "scrapeTimeout": "9s"})
        await world.user.create(good)
        await world.user.create(bad)
        await world.user.create(prometheus())
        status = await world.wait_reconciled()
        message = next(c.message for c in status.conditions if c.type == "Reconciled")
        assert message is not None
        assert message.endswith("Invalid monitors and rules are left out (1). See their Events.")
        assert "bad" not in world.running_text()
        accepted = await world.accepted(ServiceMonitor, good.key)
        rejected = await world.accepted(ServiceMonitor, bad.key)
        assert accepted is not None
        assert accepted.status == "True"
        assert rejected is not None
        problem = "spec.endpoints[0].scrapeTimeout of 9s exceeds the interval of 5s. Set it to 5s or less."
        assert (rejected.status, rejected.message) == ("False", problem)
        assert await world.warnings_of("bad") == [f"Prometheus default/prometheus leaves it out: {problem}"]
        assert await world.warnings_of("good") == []
        await world.user.patch(
            ServiceMonitor, bad.key, MergePatch({"spec": {"endpoints": [{"port": "web", "interval": "5s"}]}})
        )
        await world.wait_reason("ReloadPending")
        await world.wait_reconciled()
        assert "serviceMonitor/default/bad/0" in world.running_text()


@virtual_time
async def test_bindings_follow_selection_and_deletion(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        monitor = service_monitor()
        await world.user.create(monitor)
        await world.user.create(prometheus())
        await world.user.create(prometheus("second"))
        await world.wait_reconciled()
        await world.wait_until(lambda: world.accepted(ServiceMonitor, monitor.key))
        await world.patch_spec(serviceMonitorSelector={"matchLabels": {"team": "nobody"}})
        await world.wait_reconciled()

        async def names() -> list[str]:
            found = await world.user.get(ServiceMonitor, monitor.key)
            return [binding.name for binding in found.status.bindings]

        assert await names() == ["second"]
        await world.user.delete(Prometheus, ObjectKey("default", "second"))

        async def is_unbound() -> bool:
            return await names() == []

        await world.wait_until(is_unbound)
        with pytest.raises(NotFound):
            await world.user.get(Prometheus, ObjectKey("default", "second"))


@virtual_time
async def test_rejected_rule_is_reported_with_reason(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        good, bad = rule("good"), rule("bad", BAD_EXPRESSION)
        await world.user.create(good)
        await world.user.create(bad)
        await world.user.create(prometheus())
        await world.wait_reason("RulesRejected")

        async def is_reported() -> bool:
            verdict = await world.accepted(PrometheusRule, bad.key)
            return verdict is not None and verdict.message == "could not parse expression"

        await world.wait_until(is_reported)
        verdict = await world.accepted(PrometheusRule, good.key)
        assert verdict is not None
        assert verdict.status == "True"
        await world.user.patch(
            PrometheusRule, bad.key, MergePatch({"spec": {"groups": [{"name": "fixed", "rules": []}]}})
        )
        await world.wait_reconciled()


@virtual_time
async def test_rejected_configuration_is_reported(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(service_monitor("good"))
        await world.user.create(prometheus())
        await world.wait_reconciled()
        bad = service_monitor("bad", {"port": "web", "params": {"a": [BAD_PARAMETER]}})
        await world.user.create(bad)
        condition = await world.wait_reason("ConfigurationRejected")
        assert BAD_PARAMETER in condition.message
        assert "serviceMonitor/default/good/0" in world.running_text()
        await world.user.delete(ServiceMonitor, bad.key)
        await world.wait_reconciled()


@pytest.mark.parametrize("name", [None, "a/b", "..", "%2e"])
@virtual_time
async def test_impossible_reference_affects_no_other_monitor(name: str | None, apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        reference = {"key": "token"} if name is None else {"name": name, "key": "token"}
        bad = service_monitor("bad", {"port": "web", "authorization": {"credentials": reference}})
        await world.user.create(bad)
        await world.user.create(prometheus())
        await world.wait_reconciled()
        await world.user.create(service_monitor("later"))

        async def is_scraped() -> bool:
            return "/later/" in world.running_text()

        await world.wait_until(is_scraped, 60)
        rejected = await world.accepted(ServiceMonitor, bad.key)
        assert rejected is not None
        assert "cannot be read" in (rejected.message or "")


@virtual_time
async def test_credentials_follow_their_secret(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        login = {"credentials": {"name": "login", "key": "token"}}
        monitor = service_monitor("s", {"port": "web", "authorization": login})
        await world.user.create(monitor)
        await world.user.create(prometheus())
        await world.wait_reconciled()
        rejected = await world.accepted(ServiceMonitor, monitor.key)
        assert rejected is not None
        assert rejected.message is not None
        assert "Secret default/login, which does not exist" in rejected.message

        metadata = ObjectMeta(name="login", namespace="default")
        for token in (b"first-token", b"second-token"):
            if token == b"first-token":
                await world.user.create(Secret(metadata=metadata, data=FrozenDict({"token": token})))
            else:
                patch = MergePatch({"data": None, "stringData": {"token": token.decode()}})
                await world.user.patch(Secret, ObjectKey("default", "login"), patch)

            async def is_copied(expected: bytes = token) -> bool:
                secret = await world.user.get(Secret, WORKLOAD)
                return expected in secret.data.values()

            await world.wait_until(is_copied, 30)
        await world.wait_reconciled()
        assert "serviceMonitor/default/s/0" in world.running_text()
        assert "token" not in world.running_text().replace("credentials_file", "")


@virtual_time
async def test_namespace_labels_select_monitors(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(Namespace(metadata=ObjectMeta(name="shop")))
        await world.user.create(service_monitor("far", namespace="shop"))
        await world.user.create(prometheus(serviceMonitorNamespaceSelector={"matchLabels": {"watched": "yes"}}))
        await world.wait_reconciled()
        assert "far" not in world.running_text()
        await world.user.patch(
            Namespace, ObjectKey("", "shop"), MergePatch({"metadata": {"labels": {"watched": "yes"}}})
        )
        await world.wait_reason("ReloadPending")
        await world.wait_reconciled()
        assert "serviceMonitor/shop/far/0" in world.running_text()


@virtual_time
async def test_large_rule_affects_no_other_object(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus())
        await world.wait_reconciled()
        noise = b64encode(Random(1).randbytes(1_000_000)).decode()
        large = rule("large", f'up{{a="{noise}"}}')
        await world.user.create(large)
        await world.user.create(service_monitor("good"))
        await world.wait_reason("ReloadPending")
        await world.wait_reconciled()
        assert "/good/" in world.running_text()
        verdict = await world.accepted(PrometheusRule, large.key)
        assert verdict is not None
        assert (verdict.status, verdict.reason) == ("False", "InvalidConfiguration")
        assert (verdict.message or "").endswith("Split the PrometheusRule.")


@virtual_time
async def test_configuration_is_built_in_a_thread(
    apiserver: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()

    def record(inputs: Inputs) -> DeclaredConfiguration:
        threads.add(threading.get_ident())
        return build(inputs)

    monkeypatch.setattr("monitoring_operator.controllers.prometheus.build", record)
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus())
        await world.wait_reconciled()
    assert threads
    assert threading.get_ident() not in threads


@virtual_time
async def test_too_large_configuration_is_reported(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus())
        await world.wait_reconciled()
        certificate, _ = new_pair()
        for name in (f"monitor-{number}" for number in range(12)):
            metadata = ObjectMeta(name=name, namespace="default")
            await world.user.create(
                Secret(metadata=metadata, data=FrozenDict({"ca": certificate + b"x" * 100 * 1024}))
            )
            tls = {"ca": {"secret": {"name": name, "key": "ca"}}}
            await world.user.create(service_monitor(name, {"port": "web", "tlsConfig": tls}))
        condition = await world.wait_reason("ConfigurationTooLarge")
        assert "Select fewer monitors" in condition.message


@virtual_time
async def test_options_reach_the_pods(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        claim: dict[str, Any] = {"spec": {"resources": {"requests": {"storage": "50Gi"}}}}
        storage = {"volumeClaimTemplate": claim}
        await world.user.create(
            prometheus(retention="15d", retentionSize="40GB", version="v3.5.0", replicas=2, storage=storage)
        )
        await world.wait_reconciled()
        workload = await world.user.get(StatefulSet, WORKLOAD)
        (template,) = workload.spec.volume_claim_templates
        assert template.spec.resources.requests == {"storage": "50Gi"}
        server = workload.spec.template.spec.containers[0]
        assert server.image == "quay.io/prometheus/prometheus:v3.5.0"
        start = server.command[2].replace("$$", "$")  # as the kubelet does
        assert start.startswith("echo $$ >/etc/prometheus/running/prometheus.pid")
        assert "--storage.tsdb.retention.time=15d" in server.command
        assert "--storage.tsdb.retention.size=40GB" in server.command
        assert not [argument for argument in server.command if "lifecycle" in argument]
        assert len(world.server.read_all(Pod)) == 2


@virtual_time
async def test_ignored_fields_are_reported_once(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        endpoint: dict[str, Any] = {"port": "web", "oauth2": {"clientId": {}}, "tlsConfig": {"minVersion": "TLS13"}}
        monitor = service_monitor("orders", endpoint, sampleLimit=9, labelLimit=0)
        await world.user.create(monitor)
        await world.user.create(prometheus())
        await world.wait_reconciled()
        accepted = await world.accepted(ServiceMonitor, monitor.key)
        assert accepted is not None
        names = "spec.sampleLimit, spec.endpoints[0].oauth2, spec.endpoints[0].tlsConfig.minVersion"
        message = f"This operator does not support these fields. Remove them: {names}"
        assert (accepted.status, accepted.reason, accepted.message) == ("True", "FieldsIgnored", message)
        await asyncio.sleep(600)
        expected = [f"Prometheus default/prometheus ignores a part of it: {message}"]
        assert await world.warnings_of("orders") == expected
        assert "/orders/" in world.running_text()


@virtual_time
async def test_paused_prometheus_is_not_changed(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus())
        await world.wait_reconciled()
        before = world.running_text()
        await world.patch_spec(paused=True, replicas=2)
        await world.wait_reason("Paused")
        await world.user.create(service_monitor("late"))
        await asyncio.sleep(120)
        assert world.running_text() == before
        status = await world.status()
        assert (status.paused, status.replicas, status.unavailable_replicas) == (True, 1, 1)
        await world.patch_spec(paused=False)
        await world.wait_reconciled()
        assert (await world.status()).paused is False
        assert "/late/" in world.running_text()
        await world.patch_spec(paused=True)
        await world.user.delete(Prometheus, KEY)
        await asyncio.sleep(60)
        assert world.server.read_all(Prometheus) == ()


@virtual_time
async def test_changed_storage_says_what_to_do(apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(prometheus())
        await world.wait_reconciled()
        claim = {"spec": {"resources": {"requests": {"storage": "50Gi"}}}}
        await world.patch_spec(storage={"volumeClaimTemplate": claim})
        condition = await world.wait_reason("StorageChanged")
        command = "kubectl delete statefulset prometheus-prometheus -n default --cascade=orphan"
        assert command in condition.message
        await world.user.delete(StatefulSet, WORKLOAD)
        await world.wait_reconciled()
        workload = await world.user.get(StatefulSet, WORKLOAD)
        assert len(workload.spec.volume_claim_templates) == 1


UNWRITABLE = [
    Invalid(ApiStatus("spec.endpoints: Required value", "Invalid", 422)),
    Forbidden(ApiStatus("denied by policy", "Forbidden", 403)),
    BadRequest(ApiStatus("denied by webhook", "", 400)),
    InternalError(ApiStatus("webhook is unreachable", "InternalError", 500)),
]


@pytest.mark.parametrize("error", UNWRITABLE, ids=["invalid", "forbidden", "denied", "unreachable webhook"])
@virtual_time
async def test_unwritable_verdict_does_not_block_deletion(error: ApiError, apiserver: InMemoryApiServer) -> None:
    async with monitoring_harness(apiserver) as world:
        await world.user.create(service_monitor())
        await world.user.create(prometheus())
        await world.wait_reconciled()
        apiserver.fail_next(matching("PATCH", "/servicemonitors/orders/status"), error, times=1000)
        await world.user.delete(Prometheus, KEY)
        await asyncio.sleep(60)
        assert world.server.read_all(Prometheus) == ()
