"""Which kinds a server serves, and by what names: REST mapping.

A tool that is told ``deploy`` or ``databases.example.com`` learns here where to find it::

    discovery = Discovery(client)
    resource = await discovery.mapping("deploy")            # apps/v1, Deployment, deployments, namespaced
    deployment = await client.get(unstructured(resource), ObjectKey("default", "web"))

Source: "API Discovery" in the Kubernetes documentation; client-go, packages ``discovery`` and ``restmapper``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from steersman.client.client import Client
from steersman.client.discovery_documents import ApiResourceInfo, DiscoveryResult, discover
from steersman.errors import NoKindMatch
from steersman.meta import ApiResource, Object
from steersman.observability.runtime import Runtime

ResourceMatcher = Callable[[ApiResourceInfo], bool]


class Discovery:
    """What the server serves, remembered; asked anew when something is not found, since its CRD may be new.

    Args:
        client: asks the server.
        interval: seconds at least between two times that it is asked for what is not found.
        runtime: tells the time.
    """

    def __init__(self, client: Client, *, interval: float = 1.0, runtime: Runtime | None = None) -> None:
        self._client = client
        self._interval = interval
        self._clock = (runtime or Runtime()).clock
        self._lock = asyncio.Lock()
        self._fetched_at = float("-inf")
        self._result: DiscoveryResult | None = None

    async def refresh(self) -> None:
        """Asks the server now. Raises ApiError, ConnectionFailed; what was known before is kept then."""
        async with self._lock:
            await self._fetch()

    async def resources(self) -> tuple[ApiResourceInfo, ...]:
        """Every resource in every version; groups in the server's order, core first, preferred versions first.

        Call ``refresh`` before where it matters that nothing is missing.
        """
        return (await self._get_or_fetch()).resources

    @property
    def failures(self) -> Mapping[str, str]:
        """Why group-versions could not be asked the last time, such as that of an aggregated API that is down."""
        return self._result.failures if self._result is not None else MappingProxyType({})

    async def mapping(self, name: str, *, group: str | None = None, version: str | None = None) -> ApiResource:
        """Where ``name`` is served; of several, the first group in the server's order and its preferred version.

        Args:
            name: a kind, plural, singular or short name, in any case; or ``plural.group``, as CRDs are named.
            group: only this one (empty: core).
            version: only this one.

        Raises:
            NoKindMatch: the server serves nothing of that name.
        """
        matchers = _matchers(name.lower(), group, version)
        found = await self._find(matchers)
        if found is None and await self._refetch_if_stale():
            found = await self._find(matchers)
        if found is not None:
            return found.resource
        raise NoKindMatch(self._not_found_message(name, group, version))

    async def is_served(self, kind: type[Object] | ApiResource) -> bool:
        """Whether ``kind`` is served, in its own version.

        False also where its group cannot be asked: see ``failures``.
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
            # Somebody else may have asked while we waited.
            return self._result if self._result is not None else await self._fetch()

    async def _refetch_if_stale(self) -> bool:
        """Asks anew, unless that was done a moment ago; whether there can be news."""
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
        message = f"the server serves nothing called {name!r}{scope}; is its CustomResourceDefinition installed?"
        if not self.failures:
            return message
        return f"{message} These could not be asked: " + ", ".join(f"{k} ({v})" for k, v in self.failures.items())


def _matchers(name: str, group: str | None, version: str | None) -> list[ResourceMatcher]:
    """What ``name`` may mean, the likeliest first."""

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
