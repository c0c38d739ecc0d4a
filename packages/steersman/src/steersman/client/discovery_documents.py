"""What a server says that it serves: discovery documents, read.

Two forms are known: aggregated discovery (``apidiscovery.k8s.io/v2``, KEP-3352, in Kubernetes 1.30 and newer), which
takes two requests; and the older one of a document for each group and version, for servers and proxies that do not
know the former. In both, a list that Go left nil is null.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from steersman.client.client import Client
from steersman.errors import ApiError, NotFound
from steersman.meta import ApiResource, FrozenStruct, decode

_AGGREGATED_ACCEPT = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class ApiResourceInfo(Struct, frozen=True, kw_only=True):
    """One resource in one version, as the server serves it.

    Attributes:
        resource: where it lives; to be handed to ``unstructured()``, for instance.
        verbs: of ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``, ``deletecollection``.
        singular: such as ``deployment``.
        short_names: such as ``deploy``.
        categories: groups such as ``all`` in which ``kubectl get`` lists it.
        subresources: such as ``status`` and ``scale``.
    """

    resource: ApiResource
    verbs: tuple[str, ...] = ()
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()


class DiscoveryResult(Struct, frozen=True):
    """Everything that a server serves.

    Attributes:
        resources: groups in the server's order, core first, and in each the preferred version first.
        failures: why a group-version such as ``metrics.k8s.io/v1beta1`` could not be asked; most often the server
            behind an APIService is down. What is known of it from before may be among ``resources`` nevertheless.
    """

    resources: tuple[ApiResourceInfo, ...]
    failures: Mapping[str, str]


class _GroupVersionKind(FrozenStruct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(FrozenStruct):
    subresource: str = ""


class _AggregatedResource(FrozenStruct):
    resource: str = ""
    response_kind: _GroupVersionKind | None = None
    scope: str = ""
    singular_resource: str = ""
    verbs: tuple[str, ...] | None = ()
    short_names: tuple[str, ...] | None = ()
    categories: tuple[str, ...] | None = ()
    subresources: tuple[_Subresource, ...] | None = ()


class _AggregatedVersion(FrozenStruct):
    version: str = ""
    resources: tuple[_AggregatedResource, ...] | None = ()
    freshness: str = "Current"


class _GroupName(FrozenStruct):
    name: str = ""


class _AggregatedGroup(FrozenStruct):
    metadata: _GroupName = _GroupName()
    versions: tuple[_AggregatedVersion, ...] | None = ()


class _GroupVersion(FrozenStruct):
    group_version: str = ""
    version: str = ""


class _Group(FrozenStruct):
    name: str = ""
    versions: tuple[_GroupVersion, ...] | None = ()
    preferred_version: _GroupVersion = _GroupVersion()


class _DiscoveryDocument(FrozenStruct):
    """The answer to ``/api`` or ``/apis``: APIGroupDiscoveryList, APIVersions or APIGroupList."""

    kind: str = ""
    items: tuple[_AggregatedGroup, ...] | None = ()
    versions: tuple[str, ...] | None = ()
    groups: tuple[_Group, ...] | None = ()


class _Resource(FrozenStruct):
    name: str = ""
    singular_name: str = ""
    namespaced: bool = False
    kind: str = ""
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] | None = ()
    short_names: tuple[str, ...] | None = ()
    categories: tuple[str, ...] | None = ()


class _ResourceList(FrozenStruct):
    resources: tuple[_Resource, ...] | None = ()


async def discover(client: Client) -> DiscoveryResult:
    """Asks the server, in the aggregated form where it knows that.

    Raises:
        ApiError: not even the groups are told.
    """
    resources: list[ApiResourceInfo] = []
    failures: dict[str, str] = {}
    for path in ("/api", "/apis"):
        try:
            root = decode(await client.raw(path, accept=_AGGREGATED_ACCEPT), _DiscoveryDocument)
        except NotFound:
            # A server behind an aggregator, asked by itself, may have no core group.
            continue
        if root.kind == "APIGroupDiscoveryList":
            resources.extend(_parse_aggregated(root, failures))
        else:
            resources.extend(await _fetch_by_group(client, root, failures))
    return DiscoveryResult(tuple(resources), MappingProxyType(failures))


def _parse_aggregated(root: _DiscoveryDocument, failures: dict[str, str]) -> Iterator[ApiResourceInfo]:
    for group in root.items or ():
        for version in group.versions or ():
            name = group.metadata.name
            if version.freshness != "Current":
                failures[_group_version(name, version.version)] = (
                    f"{version.freshness}: the server behind it does not answer"
                )
            for found in version.resources or ():
                if found.response_kind is None:
                    continue
                namespaced = found.scope == "Namespaced"
                kind = found.response_kind.kind
                yield ApiResourceInfo(
                    resource=ApiResource(name, version.version, kind, found.resource, namespaced),
                    verbs=found.verbs or (),
                    singular=found.singular_resource,
                    short_names=found.short_names or (),
                    categories=found.categories or (),
                    subresources=tuple(s.subresource for s in found.subresources or ()),
                )


async def _fetch_by_group(
    client: Client, root: _DiscoveryDocument, failures: dict[str, str]
) -> list[ApiResourceInfo]:
    versions = [("", v) for v in root.versions or ()]
    for group in root.groups or ():
        preferred = group.preferred_version.version
        ordered = sorted((v.version for v in group.versions or ()), key=lambda version: version != preferred)
        versions += [(group.name, v) for v in ordered]
    fetched = await asyncio.gather(*(_fetch_version(client, g, v, failures) for g, v in versions))
    return [info for resources in fetched for info in resources]


async def _fetch_version(client: Client, group: str, version: str, failures: dict[str, str]) -> list[ApiResourceInfo]:
    try:
        body = await client.raw(f"/apis/{group}/{version}" if group else f"/api/{version}")
    except ApiError as error:
        failures[_group_version(group, version)] = str(error)
        return []
    entries = decode(body, _ResourceList).resources or ()
    subresources: dict[str, list[str]] = {}
    for entry in entries:
        plural, _, subresource = entry.name.partition("/")
        if subresource:
            subresources.setdefault(plural, []).append(subresource)
    return [
        ApiResourceInfo(
            resource=ApiResource(group, version, entry.kind, entry.name, entry.namespaced),
            verbs=entry.verbs or (),
            singular=entry.singular_name,
            short_names=entry.short_names or (),
            categories=entry.categories or (),
            subresources=tuple(subresources.get(entry.name, ())),
        )
        for entry in entries
        if "/" not in entry.name
    ]


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version
