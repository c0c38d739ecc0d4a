"""Apply manifests to a cluster, delete them, and wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import typer

from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apps_v1 import Deployment, DeploymentStatus
from steersman.api.core_v1 import Pod
from steersman.api.meta_v1 import LabelSelector
from steersman.client import Client, Discovery, connect, load_config
from steersman.errors import ConfigurationError, NoKindMatch, NotFound
from steersman.meta import ApiResource, ObjectKey, Unstructured, metadata_only, unstructured
from steersman_cli.exit_codes import CheckFailed
from steersman_manifests.manifest_files import Manifest

T = TypeVar("T")

_FIELD_MANAGER = "steersman-cli"
_CRD_RESOURCE = CustomResourceDefinition.api_resource
_CRD_KIND = _CRD_RESOURCE.kind
_MANAGER_LABEL = "app.kubernetes.io/managed-by"
# The order of kubectl and kustomize: objects that others need come first.
_APPLY_FIRST = ("Namespace", _CRD_KIND, "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_APPLY_LAST = ("Deployment", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_ESTABLISHED_TIMEOUT_SECONDS = 60.0
# Long enough for pods with a grace period, and for a namespace with its content.
_DELETE_TIMEOUT_SECONDS = 180.0
_POLL_INTERVAL_SECONDS = 0.1
_ROLLOUT_POLL_INTERVAL_SECONDS = 0.5


class Applier:
    """Applies and deletes manifests, and prints a line for each.

    Args:
        client: client of a user with the required permissions.
        dry_run: the API server validates the manifests and stores nothing.
    """

    def __init__(self, client: Client, *, dry_run: bool = False) -> None:
        self._client = client
        self._discovery = Discovery(client)
        self._dry_run = dry_run
        self._created_namespaces: set[str] = set()

    async def apply(self, manifests: list[Manifest]) -> None:
        """Apply manifests in dependency order, and wait until CRDs are served.

        Raises:
            SteersmanError: the server rejects a manifest. Manifests before it stay applied.
        """
        ordered = sorted(manifests, key=_apply_order)
        for manifest in ordered:
            if self._dry_run and _is_within(manifest, self._created_namespaces):
                typer.echo(f"{display_name(manifest)} not checked: its namespace does not exist yet")
                continue
            await self._apply(manifest)
        if not self._dry_run:
            for manifest in ordered:
                if manifest["kind"] == _CRD_KIND:
                    await self._wait_established(manifest)

    async def delete(self, manifests: list[Manifest]) -> None:
        """Delete objects in reverse order, and wait until they are gone. Missing objects are ignored.

        Raises:
            SteersmanError: the server rejects a deletion, or an object still exists after the timeout.
        """
        deleting: list[tuple[Manifest, ApiResource]] = []
        for manifest in sorted(manifests, key=_apply_order, reverse=True):
            try:
                kind = await self._resolve_kind(manifest)
                await self._client.delete(metadata_only(kind), _object_key(manifest), dry_run=self._dry_run)
            except (NotFound, NoKindMatch):
                typer.echo(f"{display_name(manifest)} not found")
            else:
                typer.echo(f"{display_name(manifest)} deleted{self._dry_run_suffix}")
                deleting.append((manifest, kind))
        if not self._dry_run:
            for manifest, kind in deleting:
                await self._wait_deleted(manifest, kind)

    async def without_foreign_crds(self, manifests: list[Manifest]) -> list[Manifest]:
        """Return the manifests without CRDs of another owner: see ``is_foreign``. Each such CRD is printed."""
        owned: list[Manifest] = []
        for manifest in manifests:
            if manifest["kind"] == _CRD_KIND and is_foreign(manifest, await self._labels_of_crd(manifest)):
                manager = manifest["metadata"]["labels"][_MANAGER_LABEL]
                typer.echo(f"{display_name(manifest)} kept: its label {_MANAGER_LABEL} is not {manager}")
            else:
                owned.append(manifest)
        return owned

    async def _labels_of_crd(self, crd: Manifest) -> Mapping[str, str] | None:
        try:
            return (await self._client.get(metadata_only(CustomResourceDefinition), _object_key(crd))).metadata.labels
        except NotFound:
            return None

    async def count_objects(self, crds: list[Manifest]) -> dict[str, int]:
        """Count the objects of each CRD, by plural. CRDs without objects are omitted."""
        counts: dict[str, int] = {}
        for manifest in crds:
            try:
                # The cluster may serve other versions than the manifest.
                installed = await self._client.get(unstructured(_CRD_RESOURCE), _object_key(manifest))
                resource = _served_resources(installed.to_dict())[0]
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
        if kind.api_resource.namespaced and not key.namespace:
            raise ConfigurationError(f"{display_name(manifest)} has no metadata.namespace")
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
        # A deployment before that would find a terminating namespace and CRD.
        deadline = asyncio.get_running_loop().time() + _DELETE_TIMEOUT_SECONDS
        while await self._current_resource_version(unstructured(resource), _object_key(manifest)) is not None:
            if asyncio.get_running_loop().time() > deadline:
                hint = "check its finalizers and its content"
                raise CheckFailed(
                    f"{display_name(manifest)} still exists after {_DELETE_TIMEOUT_SECONDS:.0f} s: {hint}"
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
        """Return why the CRD cannot be used yet."""
        status = (await self._client.get(CustomResourceDefinition, _object_key(crd))).status
        conditions = status.conditions or ()
        if not any((c.type, c.status) == ("Established", "True") for c in conditions):
            return "; ".join(f"{c.type}={c.status}: {c.message}" for c in conditions)
        await self._discovery.refresh()
        discoverable = [await self._discovery.is_served(served) for served in _served_resources(crd)]
        return None if all(discoverable) else "established, but not in API discovery yet"


async def wait_available(client: Client, key: ObjectKey, seconds: float) -> None:
    """Wait until a Deployment has only updated and available replicas.

    Args:
        client: client of the cluster.
        key: namespace and name of the Deployment.
        seconds: the timeout.

    Raises:
        CheckFailed: the timeout or the progress deadline has passed. The message has the problems of the pods.
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
    """Return why a rollout is incomplete; empty if it is complete.

    Source: ``kubectl rollout status``.
    """
    status, replicas = deployment.status or DeploymentStatus(), deployment.spec.replicas
    desired = 1 if replicas is None else replicas
    updated, available = status.updated_replicas or 0, status.available_replicas or 0
    if (status.observed_generation or 0) < (deployment.metadata.generation or 0):
        return "the Deployment controller has not observed it yet"
    if updated < desired:
        return f"{updated} of {desired} replicas are updated"
    if outdated := (status.replicas or 0) - updated:
        return f"{outdated} old replicas are still running"
    return "" if available >= updated else f"{available} of {desired} replicas are available"


def _progress_deadline_exceeded(deployment: Deployment) -> bool:
    return any(c.reason == "ProgressDeadlineExceeded" for c in deployment.status.conditions or ())


async def _container_problems(client: Client, deployment: Deployment) -> list[str]:
    """Return the reasons why containers wait or pods are unscheduled."""
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
    """Run ``action`` with a client of the selected cluster.

    Raises:
        ConfigurationError: there is no usable kubeconfig.
    """

    async def run() -> T:
        async with connect(load_config(kubeconfig or None, context=context or None)) as transport:
            return await action(Client(transport, field_manager=_FIELD_MANAGER))

    return asyncio.run(run())


def is_foreign(crd: Manifest, found_labels: Mapping[str, str] | None) -> bool:
    """Return True if the CRD in the cluster has another owner.

    This is the case if the manifest has the label ``app.kubernetes.io/managed-by``, and the CRD in the cluster lacks
    it or has another value.

    Args:
        crd: manifest of the CRD.
        found_labels: labels of the CRD in the cluster. None if it does not exist.
    """
    labels: dict[str, str] = crd["metadata"].get("labels") or {}
    manager = labels.get(_MANAGER_LABEL)
    return manager is not None and found_labels is not None and found_labels.get(_MANAGER_LABEL) != manager


def display_name(manifest: Manifest) -> str:
    """Return kubectl's name of an object, such as ``deployment.apps/shop``."""
    group = manifest["apiVersion"].rpartition("/")[0]
    return f"{manifest['kind'].lower()}{'.' if group else ''}{group}/{manifest['metadata']['name']}"


def _object_key(manifest: Manifest) -> ObjectKey:
    metadata = manifest["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"])


def _served_resources(crd: Manifest) -> list[ApiResource]:
    """Return the resource of each served version of a CRD."""
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
