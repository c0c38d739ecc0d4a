"""MyApp in the cluster of the kubeconfig, with the database operator.

Run ``make deploy IMG=…`` first.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from steersman import Client, MergePatch, NotFound, ObjectKey, ObjectMeta, connect, find_condition, load_config
from steersman.api.apps_v1 import Deployment
from steersman.api.autoscaling_v2 import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
)
from steersman.api.core_v1 import Container, Namespace, PersistentVolumeClaim, Pod, PodSpec, Service
from steersman.errors import SteersmanError
from steersman.meta import metadata_only, unstructured

from my_operator.api.v1.myapp import MyApp, Phase
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.resources import release_of

T = TypeVar("T")

pytestmark = pytest.mark.e2e
OPERATOR = ObjectKey("my-operator-system", "my-operator")
SAMPLE: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "config/samples/v1_myapp.yaml").read_text())


class Application:
    """The application of the sample, in a separate namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.key = ObjectKey(namespace, SAMPLE["metadata"]["name"])

    async def apply(self, **spec: Any) -> None:
        metadata = {**SAMPLE["metadata"], "namespace": self.key.namespace}
        sample = {**SAMPLE, "metadata": metadata, "spec": {**SAMPLE["spec"], **spec}}
        await self.client.apply(unstructured(MyApp.api_resource).of(sample))

    async def patch_spec(self, **spec: Any) -> None:
        await self.client.patch(MyApp, self.key, MergePatch({"spec": spec}))

    async def wait_for_phase(self, phase: Phase, version: str, seconds: float = 180) -> MyApp:
        """Wait until the status has ``phase`` for the desired ``version``."""

        async def matching_app() -> MyApp | None:
            app = await self.client.get(MyApp, self.key)
            status = app.status
            current = status.observed_generation == app.metadata.generation
            return app if current and (status.phase, app.spec.version) == (phase, version) else None

        return await wait_for_result(matching_app, seconds)

    async def image(self) -> str:
        release = release_of((await self.client.get(Deployment, self.key)).spec.template.spec)
        return release.image if release else ""

    async def get_json(self, path: str) -> dict[str, Any]:
        """Return the JSON response of the application through its Service."""
        return json.loads(await self.fetch(f"http://{self.key.name}{path}"))

    async def metrics(self) -> str:
        """Return the metrics of the operator for this application."""
        (pod,) = (await self.client.list(Pod, namespace=OPERATOR.namespace)).items
        exposition = await self.fetch(f"http://{pod.status.pod_ip}:8080/metrics")
        return "".join(line for line in exposition.splitlines(True) if f'namespace="{self.key.namespace}"' in line)

    async def fetch(self, url: str) -> str:
        """Return the response to a request from a pod of the namespace."""
        name = f"ask-{uuid.uuid4().hex[:8]}"
        script = f"import urllib.request as r; print(r.urlopen('{url}', timeout=10).read().decode())"
        image = await self.image()
        container = Container(name="ask", image=image, command=("python3", "-c", script))
        await self.client.create(
            Pod(
                metadata=ObjectMeta(name=name, namespace=self.key.namespace),
                spec=PodSpec(containers=(container,), restart_policy="Never"),
            )
        )
        key = ObjectKey(self.key.namespace, name)

        async def terminal_phase() -> str:
            return phase if (phase := (await self.client.get(Pod, key)).status.phase or "") in TERMINAL_PHASES else ""

        final_phase = await wait_for_result(terminal_phase, 60)
        output = "\n".join([line async for line in self.client.logs(key)])
        assert final_phase == "Succeeded", output
        return output


TERMINAL_PHASES = ("Succeeded", "Failed")


async def wait_for_result(probe: Callable[[], Awaitable[T | None]], seconds: float) -> T:
    """Return the first true result of ``probe``."""
    async with asyncio.timeout(seconds):
        while not (result := await probe()):
            await asyncio.sleep(0.5)
    return result


@asynccontextmanager
async def deployed_application() -> AsyncGenerator[Application]:
    """Create the application. Skip the test without a cluster or a deployed operator."""
    try:
        config = load_config()
    except SteersmanError as error:
        pytest.skip(f"no cluster: {error}")
    async with connect(config) as transport:
        client = Client(transport, field_manager="user")
        try:
            await client.get(Deployment, OPERATOR)
        except NotFound:
            pytest.skip("the operator is not deployed: make deploy IMG=…")
        namespace = ObjectKey("", f"e2e-myapp-{uuid.uuid4().hex[:8]}")
        await client.create(Namespace(metadata=ObjectMeta(name=namespace.name)))
        try:
            yield Application(client, namespace.name)
        finally:
            await client.delete(Namespace, namespace)


@pytest.mark.requirement(
    "design/garbage-collection", "overview/myapp", "overview/metrics", "overview/owner-references", "pattern/upgrades"
)
async def test_app_lifecycle_succeeds() -> None:
    """Install, upgrade, roll back two failures, and delete, with a real database."""
    async with deployed_application() as app:
        await app.apply(database={"enabled": True, "storage": "256Mi"}, rolloutDeadlineSeconds=20)
        status = (await app.wait_for_phase("Ready", "1.2.0")).status
        assert (status.version, status.ready_replicas) == ("1.2.0", 3)
        assert await app.get_json("/readyz") == {"version": "1.2.0", "migrations": ["1.2.0"]}
        assert (await app.get_json("/"))["visits"] == 1
        assert 'myapp_reconcile_total{name="my-application"' in await app.metrics()

        await app.patch_spec(version="1.3.0")
        await app.wait_for_phase("Ready", "1.3.0")
        assert await app.get_json("/readyz") == {"version": "1.3.0", "migrations": ["1.2.0", "1.3.0"]}
        assert (await app.get_json("/"))["visits"] == 2, "the data are still there"

        for version, reason in (("1.3.1", "RolloutFailed"), ("1.4.0", "MigrationFailed")):
            await app.patch_spec(version=version)
            status = (await app.wait_for_phase("RolledBack", version)).status
            assert status.version == "1.3.0"
            degraded = find_condition(status.conditions, "Degraded")
            assert degraded is not None and (degraded.status, degraded.reason) == ("True", reason)
            assert await app.image() == "example.com/myapp:1.3.0"
            assert (await app.get_json("/"))["version"] == "1.3.0"

        await app.patch_spec(version="1.3.0")
        await app.wait_for_phase("Ready", "1.3.0")
        await app.client.delete(MyApp, app.key)
        for kind in (Deployment, Service, Database):
            await wait_for_result(lambda kind=kind: is_deleted(app, kind), 120)
        # The deletion policy belongs to the Database and defaults to Retain.
        claims = (await app.client.list(PersistentVolumeClaim, namespace=app.key.namespace)).items
        assert [claim.metadata.name for claim in claims] == [f"data-{app.key.name}-0"]


async def is_deleted(app: Application, kind: type[Any]) -> bool:
    try:
        await app.client.get(metadata_only(kind), app.key)
    except NotFound:
        return True
    return False


@pytest.mark.requirement("programming/scale-subresource")
async def test_autoscaler_scales_replicas() -> None:
    """The autoscaler raises replicas to its minimum, even without metrics."""
    async with deployed_application() as app:
        await app.apply(database={"enabled": False}, replicas=1)
        await app.wait_for_phase("Ready", "1.2.0")
        target = CrossVersionObjectReference(api_version="example.com/v1", kind="MyApp", name=app.key.name)
        spec = HorizontalPodAutoscalerSpec(scale_target_ref=target, min_replicas=2, max_replicas=4)
        metadata = ObjectMeta(name=app.key.name, namespace=app.key.namespace)
        await app.client.create(HorizontalPodAutoscaler(metadata=metadata, spec=spec))

        async def scaled() -> bool:
            status = (await app.client.get(MyApp, app.key)).status
            return (status.phase, status.ready_replicas) == ("Ready", 2)

        assert await wait_for_result(scaled, 120)
