"""``steersman deploy`` and ``build``: manifests, order of requests, and errors."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from framework_support.projects import steersman
from framework_support.widget import Widget, WidgetSpec
from steersman import Client, MergePatch, ObjectMeta
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Namespace, Pod
from steersman.client import HttpRequest, HttpResponse, Transport
from steersman.errors import ConfigurationError, NotFound, SteersmanError
from steersman.meta import ObjectKey, decode_builtins
from steersman_cli import deploy
from steersman_cli.apply import Applier, rollout_pending_reason, wait_available
from steersman_cli.exit_codes import CheckFailed
from steersman_cli.project import Project
from steersman_manifests.crd import definition
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop-system"}}
CONFIG_MAP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "words", "namespace": "shop-system"},
    "data": {"a": "b"},
}


def test_neither_kubectl_nor_kustomize(pristine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigurationError, match="neither is in PATH"):
        deploy.deploy_manifests(Project.load(pristine), "x")


@virtual_time
async def test_apply_creates_namespaces_and_crds_first(capsys: pytest.CaptureFixture[str]) -> None:
    server = InMemoryApiServer()
    client = Client(server)
    await Applier(client).apply([CONFIG_MAP, definition(Widget), NAMESPACE])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "namespace/shop-system",
        f"customresourcedefinition.apiextensions.k8s.io/{definition(Widget)['metadata']['name']}",
        "configmap/words",
    ]
    assert (await client.get(ConfigMap, ObjectKey("shop-system", "words"))).data == {"a": "b"}
    await Applier(client).apply([CONFIG_MAP])
    await Applier(client).apply([{**CONFIG_MAP, "data": {"a": "c"}}])
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["unchanged", "configured"]


class DelayedDiscoveryTransport(Transport):
    """Transport to an API server whose discovery is outdated, as under load.

    Args:
        delay_seconds: maximum age of the list of groups.
    """

    def __init__(self, delay_seconds: float) -> None:
        self._server = InMemoryApiServer()
        self._delay_seconds = delay_seconds
        self._cached_response: HttpResponse | None = None
        self._cached_at = 0.0

    async def request(self, request: HttpRequest) -> HttpResponse:
        if request.path != "/apis":
            return await self._server.request(request)
        now = asyncio.get_running_loop().time()
        if self._cached_response is None or now > self._cached_at + self._delay_seconds:
            self._cached_response, self._cached_at = await self._server.request(request), now
        return self._cached_response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._server.stream(request)

    async def close(self) -> None:
        await self._server.close()


@virtual_time
async def test_apply_waits_until_crd_is_discoverable(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(DelayedDiscoveryTransport(delay_seconds=5))
    await Applier(client).apply([definition(Widget)])
    metadata = {"name": "a", "namespace": "default"}
    widget = {"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {}}
    await Applier(client).apply([widget])
    assert "widget.shop.example.com/a created" in capsys.readouterr().out


@virtual_time
async def test_apply_crd_missing_in_discovery_times_out() -> None:
    with pytest.raises(CheckFailed, match=r"after 60 s \(established, but not in API discovery"):
        await Applier(Client(DelayedDiscoveryTransport(delay_seconds=3600))).apply([definition(Widget)])


@virtual_time
async def test_apply_dry_run_stores_no_objects(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(InMemoryApiServer())
    await Applier(client, dry_run=True).apply([CONFIG_MAP, NAMESPACE])
    out = capsys.readouterr().out
    assert "namespace/shop-system created (dry run)" in out
    assert "configmap/words not checked" in out
    with pytest.raises(NotFound):
        await client.get(Namespace, ObjectKey("", "shop-system"))


@virtual_time
async def test_delete_waits_for_finalizers_until_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(InMemoryApiServer())
    held = {**CONFIG_MAP, "metadata": {**CONFIG_MAP["metadata"], "finalizers": ["example.com/held"]}}
    await Applier(client).apply([NAMESPACE, held])
    deleting = asyncio.create_task(Applier(client).delete([NAMESPACE, held]))
    await asyncio.sleep(60)
    assert not deleting.done(), "whoever deploys anew now is refused"
    await client.patch(ConfigMap, ObjectKey("shop-system", "words"), MergePatch({"metadata": {"finalizers": None}}))
    await deleting
    with pytest.raises(NotFound):
        await client.get(Namespace, ObjectKey("", "shop-system"))

    await Applier(client).apply([NAMESPACE, held])
    with pytest.raises(SteersmanError, match="configmap/words still exists after 180 s: check its finalizers"):
        await Applier(client).delete([held])


@virtual_time
async def test_definitions_with_objects(capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(InMemoryApiServer())
    applier = Applier(client)
    assert await applier.count_objects([definition(Widget)]) == {}
    await applier.apply([definition(Widget)])
    await client.create(Widget(metadata=ObjectMeta(name="a", namespace="default"), spec=WidgetSpec()))
    assert await applier.count_objects([definition(Widget)]) == {"widgets": 1}
    await applier.delete([definition(Widget), CONFIG_MAP])
    assert "configmap/words not found" in capsys.readouterr().out


@virtual_time
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/managed-by": "other"}])
async def test_uninstall_keeps_crds_of_another_owner(
    labels: dict[str, str], force: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    client, key = Client(InMemoryApiServer()), ObjectKey("", definition(Widget)["metadata"]["name"])
    await Applier(client).apply([labeled_definition(labels)])
    await client.create(Widget(metadata=ObjectMeta(name="a", namespace="default"), spec=WidgetSpec()))
    own = labeled_definition({"app.kubernetes.io/managed-by": "shop"})
    await deploy.delete_manifests(client, [own], force=force, dry_run=False)
    await client.get(CustomResourceDefinition, key)
    assert "kept: its label app.kubernetes.io/managed-by is not shop" in capsys.readouterr().out
    await client.delete(CustomResourceDefinition, key)
    await Applier(client).apply([own])
    await deploy.delete_manifests(client, [own], force=force, dry_run=False)
    with pytest.raises(NotFound):
        await client.get(CustomResourceDefinition, key)


@virtual_time
async def test_undeploy_deletes_objects_before_their_operator() -> None:
    client, operator = Client(InMemoryApiServer()), ObjectKey("shop-system", "words")
    await Applier(client).apply([NAMESPACE, definition(Widget), CONFIG_MAP])
    metadata = ObjectMeta(name="a", namespace="default", finalizers=("example.com/held",))
    widget = await client.create(Widget(metadata=metadata, spec=WidgetSpec()))
    deleting = asyncio.create_task(
        deploy.delete_manifests(client, [NAMESPACE, definition(Widget), CONFIG_MAP], force=True, dry_run=False)
    )
    while (await client.get(Widget, widget.key)).metadata.deletion_timestamp is None:
        await asyncio.sleep(1)
    # The operator still runs, and removes its finalizer.
    await client.get(ConfigMap, operator)
    await client.patch(Widget, widget.key, MergePatch({"metadata": {"finalizers": None}}))
    await deleting
    with pytest.raises(NotFound):
        await client.get(ConfigMap, operator)


@virtual_time
async def test_install_keeps_crds_of_another_owner(capsys: pytest.CaptureFixture[str]) -> None:
    client, key = Client(InMemoryApiServer()), ObjectKey("", definition(Widget)["metadata"]["name"])
    await Applier(client).apply([labeled_definition({})])
    before = await client.get(CustomResourceDefinition, key)
    own = labeled_definition({"app.kubernetes.io/managed-by": "shop"})
    await deploy.apply_manifests(client, [own], dry_run=False)
    assert await client.get(CustomResourceDefinition, key) == before
    assert "kept: its label app.kubernetes.io/managed-by is not shop" in capsys.readouterr().out
    await client.delete(CustomResourceDefinition, key)
    for short_name in ("wd", "wg"):
        own["spec"]["names"]["shortNames"] = [short_name]
        await deploy.apply_manifests(client, [own], dry_run=False)
        assert (await client.get(CustomResourceDefinition, key)).spec.names.short_names == (short_name,)


@virtual_time
async def test_deploy_keeps_crds_of_another_owner() -> None:
    # With our label, a later undeploy --force would delete it, with the objects of the other owner.
    client, key = Client(InMemoryApiServer()), ObjectKey("", definition(Widget)["metadata"]["name"])
    await Applier(client).apply([labeled_definition({"app.kubernetes.io/managed-by": "other"})])
    before = await client.get(CustomResourceDefinition, key)
    own = labeled_definition({"app.kubernetes.io/managed-by": "shop"})
    await deploy.apply_manifests(client, [NAMESPACE, own, CONFIG_MAP], dry_run=False)
    assert await client.get(CustomResourceDefinition, key) == before
    await client.get(ConfigMap, ObjectKey("shop-system", "words"))


@virtual_time
async def test_uninstall_counts_objects_of_served_versions() -> None:
    """The code has another version than the cluster."""
    client, key = Client(InMemoryApiServer()), ObjectKey("", definition(Widget)["metadata"]["name"])
    await Applier(client).apply([definition(Widget)])
    await client.create(Widget(metadata=ObjectMeta(name="a", namespace="default"), spec=WidgetSpec()))
    newer = definition(Widget)
    newer["spec"]["versions"][0]["name"] = "v2"
    with pytest.raises(ConfigurationError, match="objects exist: 1 widgets"):
        await deploy.delete_manifests(client, [newer], force=False, dry_run=False)
    await client.get(CustomResourceDefinition, key)


def labeled_definition(labels: dict[str, str]) -> dict[str, Any]:
    """Return the CRD of Widget with labels."""
    crd = definition(Widget)
    return {**crd, "metadata": {**crd["metadata"], "labels": labels}}


def rolled_out_deployment(**status: Any) -> dict[str, Any]:
    labels = {"app": "shop"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "shop", "image": "shop:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop", "namespace": "shop-system", "generation": 2},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        "status": status,
    }


UPDATED_STATUS = {"observedGeneration": 2, "updatedReplicas": 1, "replicas": 1}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({"observedGeneration": 1, "availableReplicas": 1}, "the Deployment controller has not observed it yet"),
        ({**UPDATED_STATUS, "updatedReplicas": 0, "availableReplicas": 1}, "0 of 1 replicas are updated"),
        ({**UPDATED_STATUS, "replicas": 2, "availableReplicas": 2}, "1 old replicas are still running"),
        (UPDATED_STATUS, "0 of 1 replicas are available"),
        ({**UPDATED_STATUS, "availableReplicas": 1}, ""),
    ],
)
def test_rollout_requires_updated_and_available_replicas(status: dict[str, Any], told: str) -> None:
    assert rollout_pending_reason(decode_builtins(rolled_out_deployment(**status), Deployment)) == told


@virtual_time
async def test_deploy_reports_unavailable_operator() -> None:
    server = InMemoryApiServer(virtual_runtime())
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    state = {
        "name": "shop",
        "ready": False,
        "restartCount": 0,
        "image": "",
        "imageID": "",
        "state": {"waiting": waiting},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shop-1", "namespace": "shop-system", "labels": {"app": "shop"}},
        "spec": {"containers": [{"name": "shop", "image": "shop:1"}]},
        "status": {"containerStatuses": [state]},
    }
    server.load(NAMESPACE, rolled_out_deployment(), pod)
    client, key = Client(server), ObjectKey("shop-system", "shop")
    await client.patch(
        Pod, ObjectKey("shop-system", "shop-1"), MergePatch({"status": pod["status"]}), subresource="status"
    )
    await client.patch(Deployment, key, MergePatch({"status": UPDATED_STATUS}), subresource="status")
    with pytest.raises(
        CheckFailed, match="after 60 s: 0 of 1 replicas are available; ImagePullBackOff: no such image"
    ):
        await wait_available(client, key, 60)
    await client.patch(Deployment, key, MergePatch({"status": {"availableReplicas": 1}}), subresource="status")
    await wait_available(client, key, 60)


def test_build(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("build", "--image", "example.com/shop:v1", "--build-arg", "BASE=python:3.12-slim", "--dry-run")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "buildah").touch(mode=0o755)
    command = steersman(pristine, *arguments).stdout
    assert command.startswith("buildah build --tag example.com/shop:v1")
    assert "--build-arg BASE=python:3.12-slim" in command
    monkeypatch.setenv("PATH", "")
    result = steersman(pristine, *arguments)
    assert result.returncode == 2
    assert "none of podman, docker, buildah is in PATH" in result.stderr


def test_build_docker_without_daemon_fails(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    result = steersman(pristine, "build", "--image", "x")
    assert result.returncode == 2
    assert "the docker daemon does not respond" in result.stderr
    buildah = tmp_path / "buildah"
    buildah.write_text("#!/bin/sh\nexit 0\n")
    buildah.chmod(0o755)
    assert steersman(pristine, "build", "--image", "x", "--dry-run").stdout.startswith("buildah build")


def test_build_reports_builder_exit_code(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = tmp_path / "podman"
    builder.write_text("#!/bin/sh\nexit 7\n")
    builder.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = steersman(pristine, "build", "--image", "x", "--builder", "podman")
    assert result.returncode == 1
    assert "podman failed with exit code 7" in result.stderr


def test_makefile_without_target_lists_targets(pristine: Path) -> None:
    listed = subprocess.run(["make"], cwd=pristine, capture_output=True, text=True, check=True).stdout
    for target in (
        "manifests",
        "test",
        "test-integration",
        "install",
        "run",
        "build",
        "deploy",
        "build-installer",
        "chart",
        "sbom",
    ):
        assert f"{target} " in listed
