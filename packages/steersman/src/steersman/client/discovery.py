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
from steersman.client.served import ServedResource, ServedResources, served_by
from steersman.errors import NoKindMatch
from steersman.meta import ApiResource, Object
from steersman.observability.runtime import Runtime

Matcher = Callable[[ServedResource], bool]


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
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._served: ServedResources | None = None

    async def refresh(self) -> None:
        """Asks the server now. Raises ApiError, ConnectionFailed; what was known before is kept then."""
        async with self._asking:
            await self._ask()

    async def resources(self) -> tuple[ServedResource, ...]:
        """Every resource in every version; groups in the server's order, core first, preferred versions first.

        Call ``refresh`` before where it matters that nothing is missing.
        """
        return (await self._known()).resources

    @property
    def failures(self) -> Mapping[str, str]:
        """Why group-versions could not be asked the last time, such as that of an aggregated API that is down."""
        return self._served.failures if self._served is not None else MappingProxyType({})

    async def mapping(self, name: str, *, group: str | None = None, version: str | None = None) -> ApiResource:
        """Where ``name`` is served; of several, the first group in the server's order and its preferred version.

        Args:
            name: a kind, plural, singular or short name, in any case; or ``plural.group``, as CRDs are named.
            group: only this one (empty: core).
            version: only this one.

        Raises:
            NoKindMatch: the server serves nothing of that name.
        """
        readings = _readings(name.lower(), group, version)
        found = await self._first(readings)
        if found is None and await self._asked_again():
            found = await self._first(readings)
        if found is not None:
            return found.resource
        raise NoKindMatch(self._complaint(name, group, version))

    async def is_served(self, kind: type[Object] | ApiResource) -> bool:
        """Whether ``kind`` is served, in its own version.

        False also where its group cannot be asked: see ``failures``.
        """
        wanted = kind if isinstance(kind, ApiResource) else kind.api_resource

        def matches(served: ServedResource) -> bool:
            found = served.resource
            return (found.group, found.version, found.plural) == (wanted.group, wanted.version, wanted.plural)

        if await self._first([matches]) is not None:
            return True
        return await self._asked_again() and await self._first([matches]) is not None

    async def _first(self, readings: Sequence[Matcher]) -> ServedResource | None:
        served = (await self._known()).resources
        return next((found for matches in readings for found in served if matches(found)), None)

    async def _known(self) -> ServedResources:
        if self._served is not None:
            return self._served
        async with self._asking:
            # Somebody else may have asked while we waited.
            return self._served if self._served is not None else await self._ask()

    async def _asked_again(self) -> bool:
        """Asks anew, unless that was done a moment ago; whether there can be news."""
        known = self._served
        async with self._asking:
            if self._served is known and self._clock.monotonic() - self._asked_at >= self._interval:
                await self._ask()
        return self._served is not known

    async def _ask(self) -> ServedResources:
        self._asked_at = self._clock.monotonic()
        self._served = await served_by(self._client)
        return self._served

    def _complaint(self, name: str, group: str | None, version: str | None) -> str:
        where = "".join(f" in {what} {value!r}" for what, value in (("group", group), ("version", version)) if value)
        told = f"the server serves nothing called {name!r}{where}; is its CustomResourceDefinition installed?"
        if not self.failures:
            return told
        return f"{told} These could not be asked: " + ", ".join(f"{k} ({v})" for k, v in self.failures.items())


def _readings(name: str, group: str | None, version: str | None) -> list[Matcher]:
    """What ``name`` may mean, the likeliest first."""

    def within(found: ServedResource) -> bool:
        resource = found.resource
        return group in (None, resource.group) and version in (None, resource.version)

    def names(found: ServedResource) -> bool:
        return within(found) and name in (found.resource.plural, found.resource.kind.lower(), found.singular)

    def shortens(found: ServedResource) -> bool:
        return within(found) and name in found.short_names

    def names_with_group(found: ServedResource) -> bool:
        return within(found) and name == f"{found.resource.plural}.{found.resource.group}"

    return [names, shortens, names_with_group]
