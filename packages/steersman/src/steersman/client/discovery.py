"""API discovery and REST mapping: the resources that a server serves.

A tool resolves names such as ``deploy`` or ``databases.example.com`` to API resources::

    discovery = Discovery(client)
    resource = await discovery.mapping("deploy")            # apps/v1, Deployment, deployments, namespaced
    deployment = await client.get(unstructured(resource), ObjectKey("default", "web"))

Aggregated discovery (``apidiscovery.k8s.io/v2``, KEP-3352, Kubernetes 1.30 and newer) takes two requests. For servers
and proxies without it, one document per group and version is fetched. In both forms, a nil slice of Go is null.

Source: "API Discovery" in the Kubernetes documentation; client-go, packages ``discovery`` and ``restmapper``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from steersman.client.client import Client
from steersman.errors import ApiError, NoKindMatch, NotFound
from steersman.meta import ApiResource, FrozenStruct, Object, decode
from steersman.observability.runtime import Runtime

_AGGREGATED_ACCEPT = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class ApiResourceInfo(Struct, frozen=True, kw_only=True):
    """A resource that the server serves, in one version.

    Attributes:
        resource: group, version, kind, plural and scope, for example for ``unstructured()``.
        verbs: supported verbs, out of ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete`` and
            ``deletecollection``.
        singular: singular name, such as ``deployment``.
        short_names: short names, such as ``deploy``.
        categories: categories such as ``all``, by which ``kubectl get`` lists several resources.
        subresources: subresources, such as ``status`` and ``scale``.
    """

    resource: ApiResource
    verbs: tuple[str, ...] = ()
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()


class DiscoveryResult(Struct, frozen=True):
    """All resources that a server serves.

    Attributes:
        resources: resources in the server's order of groups, core first. The preferred version of a group is first.
        failures: error by group-version, such as ``metrics.k8s.io/v1beta1``. Usually the server of an APIService is
            down. ``resources`` may still contain its resources from the API server's cache.
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
    """Response of ``/api`` or ``/apis``: APIGroupDiscoveryList, APIVersions or APIGroupList."""

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
    """Fetch all resources, by aggregated discovery if the server supports it.

    Errors of single group-versions are in ``failures`` of the result. A 404 for ``/api`` or ``/apis`` is ignored.

    Raises:
        ApiError: the server rejects a request for ``/api`` or ``/apis``, other than with 404.
        ConnectionFailed: no response arrived.
    """
    resources: list[ApiResourceInfo] = []
    failures: dict[str, str] = {}
    for path in ("/api", "/apis"):
        try:
            root = decode(await client.raw(path, accept=_AGGREGATED_ACCEPT), _DiscoveryDocument)
        except NotFound:
            # An aggregated API server that is accessed directly may not have a core group.
            continue
        if root.kind == "APIGroupDiscoveryList":
            resources.extend(_parse_aggregated(root, failures))
        else:
            resources.extend(await _fetch_by_group(client, root, failures))
    return DiscoveryResult(tuple(resources), MappingProxyType(failures))


async def is_served(client: Client, resource: ApiResource) -> bool:
    """Return True if the server serves ``resource`` now.

    It costs one small request for the resources of one group and version.

    Raises:
        ApiError: the server of the group does not respond.
        ConnectionFailed: no response arrived.
    """
    try:
        found = await _fetch_resources(client, resource.group, resource.version)
    except NotFound:
        return False
    return any(info.resource.plural == resource.plural for info in found)


def _parse_aggregated(root: _DiscoveryDocument, failures: dict[str, str]) -> Iterator[ApiResourceInfo]:
    for group in root.items or ():
        for version in group.versions or ():
            name = group.metadata.name
            if version.freshness != "Current":
                failures[_group_version(name, version.version)] = (
                    f"{version.freshness}: the server of the APIService does not respond"
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
        return await _fetch_resources(client, group, version)
    except ApiError as error:
        failures[_group_version(group, version)] = str(error)
        return []


async def _fetch_resources(client: Client, group: str, version: str) -> list[ApiResourceInfo]:
    body = await client.raw(f"/apis/{group}/{version}" if group else f"/api/{version}")
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


ResourceMatcher = Callable[[ApiResourceInfo], bool]


class Discovery:
    """Cache of the server's resources.

    If a resource is not found, the cache is refreshed, because its CRD may be new.

    Args:
        client: client for the requests.
        interval: minimum time in seconds between two refreshes for resources that are not found.
        runtime: source of the clock.
    """

    def __init__(self, client: Client, *, interval: float = 1.0, runtime: Runtime | None = None) -> None:
        self._client = client
        self._interval = interval
        self._clock = (runtime or Runtime()).clock
        self._lock = asyncio.Lock()
        self._fetched_at = float("-inf")
        self._result: DiscoveryResult | None = None

    async def refresh(self) -> None:
        """Fetch the resources now. If this fails, the cached ones are kept.

        Raises:
            ApiError: the server does not serve its list of groups.
            ConnectionFailed: no response arrived.
        """
        async with self._lock:
            await self._fetch()

    async def resources(self) -> tuple[ApiResourceInfo, ...]:
        """Return all resources in all versions.

        The groups are in the server's order, core first. The preferred version of a group is first. Call ``refresh``
        before, if new resources must not be missing.
        """
        return (await self._get_or_fetch()).resources

    @property
    def failures(self) -> Mapping[str, str]:
        """Errors of the last refresh by group-version, such as an unavailable APIService."""
        return self._result.failures if self._result is not None else MappingProxyType({})

    async def mapping(self, name: str, *, group: str | None = None, version: str | None = None) -> ApiResource:
        """Return the resource with a name.

        If several groups have it, the first group in the server's order and its preferred version are used.

        Args:
            name: kind, plural, singular or short name, in any case, or ``plural.group``, which is the name of a CRD.
            group: API group to search, empty for the core group. Defaults to all groups.
            version: version to search. Defaults to all versions.

        Raises:
            NoKindMatch: the server does not serve a resource with this name.
        """
        matchers = _matchers(name.lower(), group, version)
        found = await self._find(matchers)
        if found is None and await self._refetch_if_stale():
            found = await self._find(matchers)
        if found is not None:
            return found.resource
        raise NoKindMatch(self._not_found_message(name, group, version))

    async def is_served(self, kind: type[Object] | ApiResource) -> bool:
        """Return True if the server serves ``kind`` in its version.

        The result is also False if discovery failed for its group. See ``failures``.
        """
        resource = kind if isinstance(kind, ApiResource) else kind.api_resource

        def matches(served: ApiResourceInfo) -> bool:
            found = served.resource
            return (found.group, found.version, found.plural) == (resource.group, resource.version, resource.plural)

        if await self._find([matches]) is not None:
            return True
        return await self._refetch_if_stale() and await self._find([matches]) is not None

    async def _find(self, matchers: Sequence[ResourceMatcher]) -> ApiResourceInfo | None:
        resources = (await self._get_or_fetch()).resources
        return next((found for matches in matchers for found in resources if matches(found)), None)

    async def _get_or_fetch(self) -> DiscoveryResult:
        if self._result is not None:
            return self._result
        async with self._lock:
            # Another task may have fetched the resources while this one waited for the lock.
            return self._result if self._result is not None else await self._fetch()

    async def _refetch_if_stale(self) -> bool:
        """Fetch the resources again, at most once per interval.

        Returns True if this task or another one replaced the result meanwhile.
        """
        previous = self._result
        async with self._lock:
            if self._result is previous and self._clock.monotonic() - self._fetched_at >= self._interval:
                await self._fetch()
        return self._result is not previous

    async def _fetch(self) -> DiscoveryResult:
        self._fetched_at = self._clock.monotonic()
        self._result = await discover(self._client)
        return self._result

    def _not_found_message(self, name: str, group: str | None, version: str | None) -> str:
        scope = "".join(
            f" in {field} {value!r}" for field, value in (("group", group), ("version", version)) if value
        )
        message = f"the server does not serve {name!r}{scope}: check that its CustomResourceDefinition is installed"
        if not self.failures:
            return message
        return f"{message}. Discovery failed for: " + ", ".join(f"{k} ({v})" for k, v in self.failures.items())


def _matchers(name: str, group: str | None, version: str | None) -> list[ResourceMatcher]:
    """Return the interpretations of ``name``, the most likely one first."""

    def in_scope(found: ApiResourceInfo) -> bool:
        resource = found.resource
        return group in (None, resource.group) and version in (None, resource.version)

    def matches_name(found: ApiResourceInfo) -> bool:
        return in_scope(found) and name in (found.resource.plural, found.resource.kind.lower(), found.singular)

    def matches_short_name(found: ApiResourceInfo) -> bool:
        return in_scope(found) and name in found.short_names

    def matches_qualified_name(found: ApiResourceInfo) -> bool:
        return in_scope(found) and name == f"{found.resource.plural}.{found.resource.group}"

    return [matches_name, matches_short_name, matches_qualified_name]
