"""Manifests on a cluster: applied, waited for, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import typer

from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.client import Client, Discovery, connect, load_config
from steersman.errors import NoKindMatch, NotFound
from steersman.meta import ApiResource, ObjectKey, Unstructured, metadata_only, unstructured
from steersman.meta.manifests import Manifest
from steersman_cli.ending import FoundWrong

T = TypeVar("T")

_FIELD_MANAGER = "steersman-cli"
_DEFINITION = "CustomResourceDefinition"
# What others need comes first; as kubectl and kustomize order it.
_ORDER = ("Namespace", _DEFINITION, "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_LAST = ("Deployment", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_PATIENCE = 60.0
# Of pods that take their time to end, and of a namespace with all that is in it.
_LONG_PATIENCE = 180.0
_POLL = 0.1


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
        self._made: set[str] = set()

    async def apply(self, manifests: list[Manifest]) -> None:
        """Applies them by server-side apply, in an order that fits, and waits until definitions are served.

        Raises:
            SteersmanError: the server refuses one; what came before stays.
        """
        ordered = sorted(manifests, key=_place)
        for manifest in ordered:
            if self._dry_run and _is_within(manifest, self._made):
                typer.echo(f"{named(manifest)} not checked: its namespace is not there yet")
                continue
            await self._apply(manifest)
        if not self._dry_run:
            for manifest in ordered:
                if manifest["kind"] == _DEFINITION:
                    await self._waited_for(manifest)

    async def delete(self, manifests: list[Manifest]) -> None:
        """Deletes them in the opposite order, and waits until they are gone; what is not there is well.

        Raises:
            SteersmanError: the server refuses one, or one does not go.
        """
        going: list[tuple[Manifest, ApiResource]] = []
        for manifest in sorted(manifests, key=_place, reverse=True):
            try:
                kind = await self._kind(manifest)
                await self._client.delete(metadata_only(kind), _key(manifest), dry_run=self._dry_run)
            except (NotFound, NoKindMatch):
                typer.echo(f"{named(manifest)} not there")
            else:
                typer.echo(f"{named(manifest)} deleted{self._suffix}")
                going.append((manifest, kind))
        if not self._dry_run:
            for manifest, kind in going:
                await self._gone(manifest, kind)

    async def objects_of(self, definitions: list[Manifest]) -> dict[str, int]:
        """How many objects there are of each kind that is defined; those without objects are left out."""
        counts: dict[str, int] = {}
        for manifest in definitions:
            resource = _resources(manifest)[0]
            try:
                found = await self._client.list(metadata_only(resource))
            except NotFound:
                continue
            if found.items:
                counts[resource.plural] = len(found.items)
        return counts

    @property
    def _suffix(self) -> str:
        return " (dry run)" if self._dry_run else ""

    async def _apply(self, manifest: Manifest) -> None:
        kind, key = unstructured(await self._kind(manifest)), _key(manifest)
        former = await self._former(kind, key)
        applied = await self._client.apply(kind.of(manifest), dry_run=self._dry_run)
        if former is None:
            verb = "created"
            if manifest["kind"] == "Namespace":
                self._made.add(key.name)
        else:
            verb = "unchanged" if former == applied.metadata.resource_version else "configured"
        typer.echo(f"{named(manifest)} {verb}{self._suffix}")

    async def _former(self, kind: type[Unstructured], key: ObjectKey) -> str | None:
        try:
            return (await self._client.get(metadata_only(kind), key)).metadata.resource_version
        except NotFound:
            return None

    async def _kind(self, manifest: Manifest) -> ApiResource:
        group, _, version = manifest["apiVersion"].rpartition("/")
        return await self._discovery.mapping(manifest["kind"], group=group, version=version)

    async def _gone(self, manifest: Manifest, resource: ApiResource) -> None:
        """Whoever deploys anew at once would find a namespace that takes nothing, and a definition about to go."""
        deadline = asyncio.get_running_loop().time() + _LONG_PATIENCE
        while await self._former(unstructured(resource), _key(manifest)) is not None:
            if asyncio.get_running_loop().time() > deadline:
                holds = "a finalizer holds it, or what is in it"
                raise FoundWrong(f"{named(manifest)} is not gone after {_LONG_PATIENCE:.0f} s: {holds}")
            await asyncio.sleep(_POLL)

    async def _waited_for(self, manifest: Manifest) -> None:
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        while (lacks := await self._lacks(manifest)) is not None:
            if asyncio.get_running_loop().time() > deadline:
                raise FoundWrong(f"{named(manifest)} is not served after {_PATIENCE:.0f} s ({lacks})")
            await asyncio.sleep(_POLL)

    async def _lacks(self, definition: Manifest) -> str | None:
        """What its users still wait for: who looks kinds up does not find one as soon as it is established."""
        status = (await self._client.get(CustomResourceDefinition, _key(definition))).status
        conditions = status.conditions or ()
        if not any((c.type, c.status) == ("Established", "True") for c in conditions):
            return "; ".join(f"{c.type}={c.status}: {c.message}" for c in conditions)
        await self._discovery.refresh()
        listed = [await self._discovery.is_served(served) for served in _resources(definition)]
        return None if all(listed) else "it is established, but the API server does not list it yet"


def on_cluster(kubeconfig: str, context: str, work: Callable[[Client], Awaitable[T]]) -> T:
    """What ``work`` returns, given a client of the chosen cluster. Raises ConfigurationError, and as ``work``."""

    async def run() -> T:
        async with connect(load_config(kubeconfig or None, context=context or None)) as transport:
            return await work(Client(transport, field_manager=_FIELD_MANAGER))

    return asyncio.run(run())


def named(manifest: Manifest) -> str:
    """``deployment.apps/shop``, as kubectl tells it."""
    group = manifest["apiVersion"].rpartition("/")[0]
    return f"{manifest['kind'].lower()}{'.' if group else ''}{group}/{manifest['metadata']['name']}"


def _key(manifest: Manifest) -> ObjectKey:
    metadata = manifest["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"])


def _resources(definition: Manifest) -> list[ApiResource]:
    """What it defines, in each version that is served."""
    spec = definition["spec"]
    names, namespaced = spec["names"], spec["scope"] == "Namespaced"
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    return [ApiResource(spec["group"], version, names["kind"], names["plural"], namespaced) for version in versions]


def _is_within(manifest: Manifest, namespaces: set[str]) -> bool:
    return manifest["metadata"].get("namespace", "") in namespaces


def _place(manifest: Manifest) -> int:
    kind = manifest["kind"]
    if kind in _ORDER:
        return _ORDER.index(kind)
    return len(_ORDER) + (1 + _LAST.index(kind) if kind in _LAST else 0)
