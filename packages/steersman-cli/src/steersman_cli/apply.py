"""Manifests on a cluster: applied, waited for, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apps_v1 import Deployment, DeploymentStatus
from steersman.api.core_v1 import Pod
from steersman.api.meta_v1 import LabelSelector
from steersman.client import Client, Discovery, connect, load_config
from steersman.errors import NoKindMatch, NotFound
from steersman.meta import ApiResource, ObjectKey, Unstructured, metadata_only, unstructured
from steersman.meta.manifests import Manifest
from steersman_cli.exit_codes import CheckFailed

T = TypeVar("T")

_FIELD_MANAGER = "steersman-cli"
_CRD_KIND = "CustomResourceDefinition"
# What others need comes first; as kubectl and kustomize order it.
_APPLY_FIRST = ("Namespace", _CRD_KIND, "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_APPLY_LAST = ("Deployment", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_ESTABLISHED_TIMEOUT_SECONDS = 60.0
# Of pods that take their time to end, and of a namespace with all that is in it.
_DELETE_TIMEOUT_SECONDS = 180.0
_POLL_INTERVAL_SECONDS = 0.1
_ROLLOUT_POLL_INTERVAL_SECONDS = 0.5


class Applier:
    """Puts manifests on one cluster, and tells each.

    Args:
        client: of who may do so.
        dry_run: the API server checks them and stores nothing.
    """

    def __init__(self, client: Client, *, dry_run: bool = False) -> None:
        self._client = client
        self._discovery = Discovery(client)
        self._dry_run = dry_run
        self._created_namespaces: set[str] = set()

    async def apply(self, manifests: list[Manifest]) -> None:
        """Applies them by server-side apply, in an order that fits, and waits until definitions are served.

        Raises:
            SteersmanError: the server refuses one; what came before stays.
        """
        ordered = sorted(manifests, key=_apply_order)
        for manifest in ordered:
            if self._dry_run and _is_within(manifest, self._created_namespaces):
                typer.echo(f"{display_name(manifest)} not checked: its namespace is not there yet")
                continue
            await self._apply(manifest)
        if not self._dry_run:
            for manifest in ordered:
                if manifest["kind"] == _CRD_KIND:
                    await self._wait_established(manifest)

    async def delete(self, manifests: list[Manifest]) -> None:
        """Deletes them in the opposite order, and waits until they are gone; what is not there is well.

        Raises:
            SteersmanError: the server refuses one, or one does not go.
        """
        deleting: list[tuple[Manifest, ApiResource]] = []
        for manifest in sorted(manifests, key=_apply_order, reverse=True):
            try:
                kind = await self._resolve_kind(manifest)
                await self._client.delete(metadata_only(kind), _object_key(manifest), dry_run=self._dry_run)
            except (NotFound, NoKindMatch):
                typer.echo(f"{display_name(manifest)} not there")
            else:
                typer.echo(f"{display_name(manifest)} deleted{self._dry_run_suffix}")
                deleting.append((manifest, kind))
        if not self._dry_run:
            for manifest, kind in deleting:
                await self._wait_deleted(manifest, kind)

    async def count_objects(self, crds: list[Manifest]) -> dict[str, int]:
        """How many objects there are of each kind that is defined; those without objects are left out."""
        counts: dict[str, int] = {}
        for manifest in crds:
            resource = _served_resources(manifest)[0]
            try:
                found = await self._client.list(metadata_only(resource))
            except NotFound:
                continue
            if found.items:
                counts[resource.plural] = len(found.items)
        return counts

    @property
    def _dry_run_suffix(self) -> str:
        return " (dry run)" if self._dry_run else ""

    async def _apply(self, manifest: Manifest) -> None:
        kind, key = unstructured(await self._resolve_kind(manifest)), _object_key(manifest)
        previous = await self._current_resource_version(kind, key)
        applied = await self._client.apply(kind.of(manifest), dry_run=self._dry_run)
        if previous is None:
            verb = "created"
            if manifest["kind"] == "Namespace":
                self._created_namespaces.add(key.name)
        else:
            verb = "unchanged" if previous == applied.metadata.resource_version else "configured"
        typer.echo(f"{display_name(manifest)} {verb}{self._dry_run_suffix}")

    async def _current_resource_version(self, kind: type[Unstructured], key: ObjectKey) -> str | None:
        try:
            return (await self._client.get(metadata_only(kind), key)).metadata.resource_version
        except NotFound:
            return None

    async def _resolve_kind(self, manifest: Manifest) -> ApiResource:
        group, _, version = manifest["apiVersion"].rpartition("/")
        return await self._discovery.mapping(manifest["kind"], group=group, version=version)

    async def _wait_deleted(self, manifest: Manifest, resource: ApiResource) -> None:
        """Whoever deploys anew at once would find a namespace that takes nothing, and a definition about to go."""
        deadline = asyncio.get_running_loop().time() + _DELETE_TIMEOUT_SECONDS
        while await self._current_resource_version(unstructured(resource), _object_key(manifest)) is not None:
            if asyncio.get_running_loop().time() > deadline:
                hint = "a finalizer holds it, or what is in it"
                raise CheckFailed(
                    f"{display_name(manifest)} is not gone after {_DELETE_TIMEOUT_SECONDS:.0f} s: {hint}"
                )
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    async def _wait_established(self, manifest: Manifest) -> None:
        deadline = asyncio.get_running_loop().time() + _ESTABLISHED_TIMEOUT_SECONDS
        while (reason := await self._not_ready_reason(manifest)) is not None:
            if asyncio.get_running_loop().time() > deadline:
                raise CheckFailed(
                    f"{display_name(manifest)} is not served after {_ESTABLISHED_TIMEOUT_SECONDS:.0f} s ({reason})"
                )
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    async def _not_ready_reason(self, crd: Manifest) -> str | None:
        """What its users still wait for: who looks kinds up does not find one as soon as it is established."""
        status = (await self._client.get(CustomResourceDefinition, _object_key(crd))).status
        conditions = status.conditions or ()
        if not any((c.type, c.status) == ("Established", "True") for c in conditions):
            return "; ".join(f"{c.type}={c.status}: {c.message}" for c in conditions)
        await self._discovery.refresh()
        discoverable = [await self._discovery.is_served(served) for served in _served_resources(crd)]
        return None if all(discoverable) else "it is established, but the API server does not list it yet"


async def wait_available(client: Client, key: ObjectKey, seconds: float) -> None:
    """Waits until all replicas of a Deployment are of its present template and available, and no others are there.

    Raises:
        FoundWrong: they are not in time, or Kubernetes gave up; says what the pods wait for.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        deployment = await client.get(Deployment, key)
        pending = rollout_pending_reason(deployment)
        if not pending:
            return
        if asyncio.get_running_loop().time() > deadline or _progress_deadline_exceeded(deployment):
            reasons = "; ".join([pending, *await _container_problems(client, deployment)])
            raise CheckFailed(f"deployment.apps/{key.name} is not available after {seconds:.0f} s: {reasons}")
        await asyncio.sleep(_ROLLOUT_POLL_INTERVAL_SECONDS)


def rollout_pending_reason(deployment: Deployment) -> str:
    """What a rollout still waits for; empty where it is done. As ``kubectl rollout status`` has it."""
    status, replicas = deployment.status or DeploymentStatus(), deployment.spec.replicas
    desired = 1 if replicas is None else replicas
    updated, available = status.updated_replicas or 0, status.available_replicas or 0
    if (status.observed_generation or 0) < (deployment.metadata.generation or 0):
        return "it was not looked at yet"
    if updated < desired:
        return f"{updated} of {desired} replicas are new"
    if outdated := (status.replicas or 0) - updated:
        return f"{outdated} old replicas are still there"
    return "" if available >= updated else f"{available} of {desired} replicas are available"


def _progress_deadline_exceeded(deployment: Deployment) -> bool:
    return any(c.reason == "ProgressDeadlineExceeded" for c in deployment.status.conditions or ())


async def _container_problems(client: Client, deployment: Deployment) -> list[str]:
    """What containers wait for, or why they are not ready."""
    selected = deployment.spec.selector or LabelSelector()
    selector = ",".join(f"{name}={value}" for name, value in selected.match_labels.items())
    pods = (await client.list(Pod, namespace=deployment.metadata.namespace, label_selector=selector)).items
    reasons: dict[str, None] = {}
    for pod in pods:
        for container in pod.status.container_statuses or () if pod.status else ():
            waiting = container.state.waiting if container.state else None
            if waiting is not None:
                reasons[f"{waiting.reason}: {waiting.message}" if waiting.message else str(waiting.reason)] = None
        for condition in pod.status.conditions or () if pod.status else ():
            if condition.status == "False" and condition.message and condition.type == "PodScheduled":
                reasons[f"{condition.reason}: {condition.message}"] = None
    return list(reasons)


def run_with_client(kubeconfig: str, context: str, action: Callable[[Client], Awaitable[T]]) -> T:
    """What ``work`` returns, given a client of the chosen cluster. Raises ConfigurationError, and as ``work``."""

    async def run() -> T:
        async with connect(load_config(kubeconfig or None, context=context or None)) as transport:
            return await action(Client(transport, field_manager=_FIELD_MANAGER))

    return asyncio.run(run())


def display_name(manifest: Manifest) -> str:
    """``deployment.apps/shop``, as kubectl tells it."""
    group = manifest["apiVersion"].rpartition("/")[0]
    return f"{manifest['kind'].lower()}{'.' if group else ''}{group}/{manifest['metadata']['name']}"


def _object_key(manifest: Manifest) -> ObjectKey:
    metadata = manifest["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"])


def _served_resources(crd: Manifest) -> list[ApiResource]:
    """What it defines, in each version that is served."""
    spec = crd["spec"]
    names, namespaced = spec["names"], spec["scope"] == "Namespaced"
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    return [ApiResource(spec["group"], version, names["kind"], names["plural"], namespaced) for version in versions]


def _is_within(manifest: Manifest, namespaces: set[str]) -> bool:
    return manifest["metadata"].get("namespace", "") in namespaces


def _apply_order(manifest: Manifest) -> int:
    kind = manifest["kind"]
    if kind in _APPLY_FIRST:
        return _APPLY_FIRST.index(kind)
    return len(_APPLY_FIRST) + (1 + _APPLY_LAST.index(kind) if kind in _APPLY_LAST else 0)
