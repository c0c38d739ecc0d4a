"""Targets and labels equal those of prometheus-operator on generated monitors.

Both configurations run in a real Prometheus, so that differences of their texts do not matter.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import subprocess
from asyncio.subprocess import STDOUT
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from steersman import Client, MergePatch, NotFound, ObjectKey
from steersman.api.core_v1 import Pod, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.meta import decode_builtins
from steersman_testing.envtest import Envtest

from generated_monitors import APPS, generated_monitors, generated_pods
from monitoring_objects import prometheus
from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor
from monitoring_operator.configuration import Inputs, build, select
from prometheus_api import active_targets
from prometheus_processes import PrometheusProcesses, program_directory

MODULE = "github.com/prometheus-operator/prometheus-operator"
GO_DIRECTORY = Path(__file__).parent / "go"
MONITORS = 120
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "0"))
KINDS: dict[str, type[ServiceMonitor] | type[PodMonitor]] = {
    "ServiceMonitor": ServiceMonitor,
    "PodMonitor": PodMonitor,
}
NAME = "prometheus"

Targets = Mapping[str, list[tuple[str, tuple[tuple[str, str], ...]]]]
"""URLs and labels of the targets of each job."""


def go(*arguments: str) -> str:
    """Run Go in the module that requires prometheus-operator."""
    done = subprocess.run(["go", *arguments], cwd=GO_DIRECTORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def foreign_operator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build prometheus-operator. Go caches it."""
    program = tmp_path_factory.mktemp("operator") / "prometheus-operator"
    go("build", "-o", str(program), f"{MODULE}/cmd/operator")
    return program


async def create(client: Client, kind: type[Any], namespace: str, manifest: dict[str, Any]) -> Any:
    metadata = {**manifest["metadata"], "namespace": namespace}
    return await client.create(decode_builtins({**manifest, "metadata": metadata}, kind))


async def create_workloads(client: Client, namespace: str) -> None:
    """Create pods, and a Service with two ports for each application."""
    for manifest in generated_pods():
        pod = await create(client, Pod, namespace, manifest)
        await client.patch(Pod, pod.key, MergePatch({"status": manifest["status"]}), subresource="status")
    pods = [pod for pod in (await client.list(Pod, namespace=namespace)).items if pod.status.phase == "Running"]
    ports = [{"name": "web", "port": 8080, "protocol": "TCP"}, {"name": "metrics", "port": 9100, "protocol": "TCP"}]
    for app in APPS:
        labels = {"app": app, "tier": "web"}
        await create(
            client, Service, namespace, {"metadata": {"name": app, "labels": labels}, "spec": {"ports": ports}}
        )
        endpoints = [
            {
                "addresses": [pod.status.pod_ip],
                "conditions": {"ready": True},
                "nodeName": pod.spec.node_name,
                "targetRef": {"kind": "Pod", "name": pod.metadata.name, "namespace": namespace},
            }
            for pod in pods
            if pod.metadata.labels["app"] == app
        ]
        slice_labels = {**labels, "kubernetes.io/service-name": app}
        manifest = {"addressType": "IPv4", "endpoints": endpoints, "ports": ports}
        await create(
            client, EndpointSlice, namespace, {"metadata": {"name": app, "labels": slice_labels}, **manifest}
        )


@asynccontextmanager
async def running_foreign_operator(program: Path, envtest: Envtest, directory: Path) -> AsyncGenerator[None]:
    """Run prometheus-operator as the administrator."""
    kubeconfig = envtest.kubeconfig_dict
    user, cluster = kubeconfig["users"][0]["user"], kubeconfig["clusters"][0]["cluster"]
    credentials = {
        "cert": user["client-certificate-data"],
        "key": user["client-key-data"],
        "ca": cluster["certificate-authority-data"],
    }
    for name, content in credentials.items():
        (directory / name).write_bytes(base64.b64decode(content))
    arguments = [f"--{name}-file={directory / name}" for name in credentials]
    with (directory / "operator.log").open("wb") as logs:
        process = await asyncio.create_subprocess_exec(
            str(program),
            f"--apiserver={cluster['server']}",
            *arguments,
            "--kubelet-endpoints=false",
            "--kubelet-endpointslice=false",
            "--web.listen-address=127.0.0.1:0",
            stdout=logs,
            stderr=STDOUT,
        )
        try:
            yield
        finally:
            process.kill()
            await process.wait()


async def foreign_configuration(client: Client, namespace: str, jobs: int) -> str:
    """Wait until prometheus-operator has written all valid monitors, and return the configuration."""
    text = ""
    async with asyncio.timeout(180):
        while text.count("job_name: ") < jobs:
            try:
                secret = await client.get(Secret, ObjectKey(namespace, f"prometheus-{NAME}"))
                text = gzip.decompress(secret.data["prometheus.yaml.gz"]).decode()
            except (NotFound, KeyError):
                pass
            await asyncio.sleep(0.5)
    return text


async def read_targets(ip: str) -> Targets:
    found: dict[str, list[tuple[str, tuple[tuple[str, str], ...]]]] = defaultdict(list)
    for target in await active_targets(ip):
        found[target.job].append((target.url, tuple(sorted(target.labels.items()))))
    return {job: sorted(targets) for job, targets in found.items()}


async def own_configuration(client: Client, namespace: str, declared: Prometheus) -> str:
    """Return the configuration of this operator for the monitors of a namespace."""
    service_monitors = (await client.list(ServiceMonitor, namespace=namespace)).items
    pod_monitors = (await client.list(PodMonitor, namespace=namespace)).items
    inputs = Inputs(
        prometheus=declared,
        service_monitors=select(
            service_monitors, declared.spec.service_monitor_selector, None, own_namespace=namespace, namespaces={}
        ),
        pod_monitors=select(
            pod_monitors, declared.spec.pod_monitor_selector, None, own_namespace=namespace, namespaces={}
        ),
        contents={},
    )
    return build(inputs).text


async def test_targets_equal_those_of_prometheus_operator(foreign_operator: Path, tmp_path: Path) -> None:
    crds = Path(go("list", "-m", "-f", "{{.Dir}}", MODULE)) / "example/prometheus-operator-crd"
    with Envtest.start() as envtest, envtest.namespace() as namespace, envtest.namespace() as other:
        envtest.install_crds(crds)
        processes = PrometheusProcesses(tmp_path, program_directory(), envtest.kubeconfig)
        async with envtest.client() as client, running_foreign_operator(foreign_operator, envtest, tmp_path):
            for each in (namespace, other):
                await create_workloads(client, each)
            for kind, manifest in generated_monitors(SEED, MONITORS, other):
                await create(client, KINDS[kind], namespace, manifest)
            spec = {"serviceDiscoveryRole": "EndpointSlice", "serviceAccountName": "default", "version": "v2.53.3"}
            await client.create(prometheus(NAME, namespace))
            await client.patch(Prometheus, ObjectKey(namespace, NAME), MergePatch({"spec": spec}))
            declared = await client.get(Prometheus, ObjectKey(namespace, NAME))
            own = await own_configuration(client, namespace, declared)
            foreign = await foreign_configuration(client, namespace, own.count("job_name: "))
            assert job_names(own) == job_names(foreign)
            try:
                await compare(processes, own, foreign)
            finally:
                await processes.stop_all()


def job_names(text: str) -> list[str]:
    return sorted(job["job_name"] for job in yaml.safe_load(text)["scrape_configs"])


async def compare(processes: PrometheusProcesses, own: str, foreign: str) -> None:
    """Run both configurations until their targets are equal."""
    ips: list[str] = []
    for name, text in (("own", own), ("foreign", foreign)):
        # Its reloader replaces these variables.
        text = text.replace("$(POD_NAME)", name).replace("$(SHARD)", "0")
        files = {"revision": name.encode(), "prometheus.yaml.gz": gzip.compress(text.encode())}
        ips.append(await processes.start_server(name, name, files))
    results: list[Targets] = [{}, {}]
    deadline = asyncio.get_running_loop().time() + 60
    while not results[0] or results[0] != results[1]:
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(1)
        results = [await read_targets(ip) for ip in ips]
    assert len(results[0]) > MONITORS / 3, "most generated monitors select no target"
    different = {job for job in results[0].keys() | results[1].keys() if results[0].get(job) != results[1].get(job)}
    assert not different, {job: [result.get(job) for result in results] for job in sorted(different)[:3]}
