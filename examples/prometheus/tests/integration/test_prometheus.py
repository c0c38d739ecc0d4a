"""Prometheus on the real API server, with a Prometheus process per pod."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml
from msgspec import structs
from steersman import Client, FrozenDict, Manager, ManagerOptions, MergePatch, Object, ObjectKey, ObjectMeta, connect
from steersman.api.core_v1 import Pod, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.meta import decode_builtins
from steersman_testing.envtest import Envtest

from metrics_target import metrics_target
from monitoring_harness import PrometheusDriver, running_operator
from monitoring_objects import ARTICLE, LABELS, pod_monitor, rule, service_monitor
from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.main import setup
from prometheus_api import Target, active_targets, rule_names
from prometheus_processes import PrometheusProcesses, program_directory
from server_kubelet import FakeKubelet

ROLE: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "config/rbac/role.yaml").read_text())
DISCOVERY_RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["services", "pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
]
PORT = 8080
T = TypeVar("T", bound=Object)


class Cluster(PrometheusDriver):
    """One Prometheus with real servers."""

    def __init__(self, user: Client, namespace: str, processes: PrometheusProcesses) -> None:
        super().__init__(user, ObjectKey(namespace, "prometheus"), 0.2)
        self.processes = processes

    @property
    def namespace(self) -> str:
        return self.key.namespace

    async def create(self, kind: type[Any], manifest: dict[str, Any]) -> Any:
        """Create an object in the namespace."""
        metadata = {**manifest["metadata"], "namespace": self.namespace}
        return await self.user.create(decode_builtins({**manifest, "metadata": metadata}, kind))

    async def create_pod(self, name: str, ip: str) -> Pod:
        """Create a running pod with the port ``web``."""
        container = {"name": "orders", "image": "orders", "ports": [{"name": "web", "containerPort": PORT}]}
        manifest = {
            "metadata": {"name": name, "labels": {"app": "orders", "version": "2"}},
            "spec": {"containers": [container]},
        }
        pod = await self.create(Pod, manifest)
        status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
        return await self.user.patch(Pod, pod.key, MergePatch({"status": status}), subresource="status")

    async def create_service(self, pod: Pod, address: str) -> None:
        """Create a Service whose endpoint is ``pod``. An EndpointSlice cannot have loopback addresses."""
        port = {"name": "web", "port": 80, "targetPort": "web"}
        labels = {"app": "orders", "tier": "shop"}
        spec = {"ports": [port], "selector": {"app": "orders"}}
        await self.create(Service, {"metadata": {"name": "orders", "labels": labels}, "spec": spec})
        reference = {"kind": "Pod", "name": pod.metadata.name, "namespace": self.namespace, "uid": pod.metadata.uid}
        manifest = {
            "metadata": {"name": "orders-1", "labels": {**labels, "kubernetes.io/service-name": "orders"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}, "targetRef": reference}],
            "ports": [{"name": "web", "port": PORT, "protocol": "TCP"}],
        }
        await self.create(EndpointSlice, manifest)

    async def server_ip(self) -> str:
        (pod,) = await self.server_pods()
        assert pod.status.pod_ip is not None
        return pod.status.pod_ip

    async def server_pods(self) -> list[Pod]:
        return [pod for pod in await self.pods() if pod.metadata.labels.get("app.kubernetes.io/name") == "prometheus"]

    async def wait_targets(self, *healths: str) -> list[Target]:
        """Wait until the targets have the given healths."""
        ip, found = await self.server_ip(), list[Target]()

        async def has_targets() -> bool:
            found[:] = await active_targets(ip)
            return [target.health for target in found] == list(healths)

        await self.wait_until(has_targets, 60)
        return found


@asynccontextmanager
async def monitored_cluster(envtest: Envtest, namespace: str, directory: Path) -> AsyncGenerator[Cluster]:
    """Run the operator with its role, and a kubelet with all permissions."""
    programs = program_directory()
    operator = envtest.user("monitoring-operator", roles=[ROLE])
    discovery = envtest.user("prometheus", rules=DISCOVERY_RULES)
    processes = PrometheusProcesses(directory, programs, discovery.kubeconfig)
    async with connect(operator.config) as transport, envtest.client() as user:

        async def read(kind: type[Any]) -> Sequence[Any]:
            return (await user.list(kind, namespace=namespace)).items

        manager = Manager(transport, ManagerOptions(namespaces=(namespace,)))
        setup(manager)
        kubelet = FakeKubelet(user, read, processes)
        cluster = Cluster(user, namespace, processes)
        try:
            async with running_operator(manager, kubelet.reconcile_pods, 0.2):
                await cluster.create_service_account("prometheus")
                yield cluster
        finally:
            await processes.stop_all()


def in_namespace(obj: T, namespace: str) -> T:
    """Return a copy in another namespace, without its UID."""
    metadata = ObjectMeta(name=obj.metadata.name, namespace=namespace, labels=FrozenDict(LABELS))
    return structs.replace(obj, metadata=metadata)


async def test_targets_and_labels_follow_monitors(envtest: Envtest, envtest_namespace: str, tmp_path: Path) -> None:
    async with monitored_cluster(envtest, envtest_namespace, tmp_path) as cluster:
        await cluster.create(Prometheus, yaml.safe_load(ARTICLE))
        await cluster.wait_reconciled(60)
        (server,) = await cluster.server_pods()
        process_id = cluster.processes.process_id(server)
        pod = await cluster.create_pod("orders-0", "127.250.0.1")
        await cluster.create_service(pod, "10.250.0.1")
        monitor = service_monitor("orders", targetLabels=["tier"], podTargetLabels=["version"])
        await cluster.user.create(in_namespace(monitor, cluster.namespace))
        broken = service_monitor("broken", {"port": "web", "interval": "5s", "scrapeTimeout": "9s"})
        await cluster.user.create(in_namespace(broken, cluster.namespace))

        async def has_target() -> bool:
            return len(await active_targets(await cluster.server_ip())) == 1

        await cluster.wait_until(has_target, 60)
        await cluster.wait_reconciled(60)
        (target,) = await active_targets(await cluster.server_ip())
        assert target.url == f"http://10.250.0.1:{PORT}/metrics"
        assert target.labels == {
            "container": "orders",
            "endpoint": "web",
            "instance": f"10.250.0.1:{PORT}",
            "job": "orders",
            "namespace": cluster.namespace,
            "pod": "orders-0",
            "service": "orders",
            "tier": "shop",
            "version": "2",
        }
        verdict = await cluster.accepted(ServiceMonitor, ObjectKey(cluster.namespace, "broken"))
        assert verdict is not None
        assert verdict.message is not None
        assert verdict.message.startswith("spec.endpoints[0].scrapeTimeout of 9s exceeds the interval of 5s.")
        assert await cluster.server_pods() == [await cluster.user.get(Pod, server.key)]
        assert cluster.processes.process_id(server) == process_id


async def test_credentials_are_used_and_rotated(envtest: Envtest, envtest_namespace: str, tmp_path: Path) -> None:
    async with monitored_cluster(envtest, envtest_namespace, tmp_path) as cluster:
        pod = await cluster.create_pod("orders-0", cluster.processes.free_ip())
        assert pod.status.pod_ip is not None
        async with metrics_target(pod.status.pod_ip, PORT, "first") as target:
            secret = Secret(
                metadata=ObjectMeta(name="token", namespace=cluster.namespace), data=FrozenDict({"token": b"first"})
            )
            await cluster.user.create(secret)
            manifest = yaml.safe_load(ARTICLE)
            manifest["spec"] |= {"podMonitorSelector": {}, "scrapeInterval": "1s"}
            await cluster.create(Prometheus, manifest)
            login = {"credentials": {"name": "token", "key": "token"}}
            monitor = pod_monitor("orders", {"port": "web", "authorization": login})
            await cluster.user.create(in_namespace(monitor, cluster.namespace))
            await cluster.wait_until(cluster.server_pods, 60)
            await cluster.wait_reconciled(60)
            (up,) = await cluster.wait_targets("up")
            assert up.labels["job"] == f"{cluster.namespace}/orders"
            target.token = "second"
            await cluster.wait_targets("down")
            patch = MergePatch({"stringData": {"token": "second"}})
            await cluster.user.patch(Secret, secret.key, patch)
            await cluster.wait_targets("up")
            verdict = await cluster.accepted(PodMonitor, ObjectKey(cluster.namespace, "orders"))
            assert verdict is not None
            assert verdict.status == "True"


async def test_invalid_rule_is_left_out_and_reported(
    envtest: Envtest, envtest_namespace: str, tmp_path: Path
) -> None:
    async with monitored_cluster(envtest, envtest_namespace, tmp_path) as cluster:
        manifest = yaml.safe_load(ARTICLE)
        manifest["spec"] |= {"ruleSelector": {}}
        await cluster.create(Prometheus, manifest)
        await cluster.wait_reconciled(60)
        await cluster.user.create(in_namespace(rule("good"), cluster.namespace))
        bad = in_namespace(rule("bad", "sum by ("), cluster.namespace)
        await cluster.user.create(bad)
        await cluster.wait_reason("RulesRejected", 60)
        assert await rule_names(await cluster.server_ip()) == ["Down"]

        async def is_rejected() -> bool:
            verdict = await cluster.accepted(PrometheusRule, bad.key)
            return verdict is not None and "could not parse expression" in (verdict.message or "")

        await cluster.wait_until(is_rejected, 60)
        await cluster.user.delete(PrometheusRule, bad.key)
        await cluster.wait_reconciled(60)
