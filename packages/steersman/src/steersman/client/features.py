"""What this server can do that others cannot: by its version where that tells, by trying where it does not.

Kubernetes 1.30 and newer are supported. What newer ones add is used where it is found, and done without elsewhere:

    comparable resource versions   without: versions are compared for equality alone (KEP-5504, Kubernetes 1.35)
    WatchList                      without: lists in pages, then a watch (KEP-3157). Its feature gate was on in 1.32,
                                   off in 1.33, on again from 1.34, and administrators turn it: so it is tried
"""

from __future__ import annotations

import re

from msgspec import Struct

from steersman.client.client import Client
from steersman.client.transport import HttpRequest
from steersman.errors import BadRequest, Forbidden, Invalid
from steersman.meta import ApiResource, FrozenDict, FrozenStruct, Object, decode

_COMPARABLE_SINCE = (1, 35)
_NAMESPACES = ApiResource("", "v1", "Namespace", "namespaces", False)


class ServerVersion(Struct, frozen=True, kw_only=True):
    """``/version``. Managed offerings append to ``minor`` and ``git_version``: ``36+``, ``v1.36.3-gke.1``."""

    major: int
    minor: int
    git_version: str = ""
    platform: str = ""

    def __str__(self) -> str:
        return self.git_version or f"v{self.major}.{self.minor}"


class ServerFeatures(Struct, frozen=True, kw_only=True):
    """What was found out.

    Attributes:
        version: of the server.
        comparable_resource_versions: whether of two versions of one resource the larger number is the newer one; for
            resources that this server stores itself, not those of aggregated APIs.
        watch_list: whether a watch can begin with all objects (``sendInitialEvents``).
    """

    version: ServerVersion
    comparable_resource_versions: bool
    watch_list: bool


class _Version(FrozenStruct):
    major: str = ""
    minor: str = ""
    git_version: str = ""
    platform: str = ""
    emulation_major: str = ""
    emulation_minor: str = ""


class _ListMeta(FrozenStruct):
    resource_version: str = ""


class _List(FrozenStruct):
    metadata: _ListMeta = _ListMeta()


class _EventMeta(FrozenStruct):
    annotations: FrozenDict[str, str] = FrozenDict()


class _EventObject(FrozenStruct):
    metadata: _EventMeta = _EventMeta()


class _Event(FrozenStruct):
    object: _EventObject = _EventObject()


async def server_version(client: Client) -> ServerVersion:
    """The server's version; where it emulates an older one, that (KEP-4330).

    Raises:
        ApiError, ConnectionFailed: the server does not tell.
    """
    response = decode(await client.raw("/version"), _Version)
    return ServerVersion(
        major=_leading_number(response.emulation_major or response.major),
        minor=_leading_number(response.emulation_minor or response.minor),
        git_version=response.git_version,
        platform=response.platform,
    )


async def detect_features(client: Client, kind: type[Object] | ApiResource = _NAMESPACES) -> ServerFeatures:
    """What the server can do, by three small requests.

    Args:
        client: may list and watch ``kind``. Where it may not, nothing is observed, and what would have had to be is
            taken for absent: the fallbacks are always right, only slower.
        kind: on which it is tried.

    Raises:
        ApiError, ConnectionFailed: the server does not answer.
    """
    version = await server_version(client)
    resource = kind if isinstance(kind, ApiResource) else kind.api_resource
    return ServerFeatures(
        version=version,
        comparable_resource_versions=(version.major, version.minor) >= _COMPARABLE_SINCE
        and await _has_numeric_resource_versions(client, resource),
        watch_list=await _supports_watch_list(client, resource),
    )


async def _has_numeric_resource_versions(client: Client, resource: ApiResource) -> bool:
    """Whether the collection's version has the form that KEP-5504 demands; other stores than etcd may not give it."""
    try:
        body = await client.raw(resource.path(), query={"limit": "1"})
    except Forbidden:
        return False
    return re.fullmatch("[1-9][0-9]*", decode(body, _List).metadata.resource_version) is not None


async def _supports_watch_list(client: Client, resource: ApiResource) -> bool:
    query = {
        "watch": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        # One that selects nothing: only the bookmark that ends the beginning is of interest.
        "fieldSelector": "metadata.name=-",
        "timeoutSeconds": "5",
    }
    request = HttpRequest(method="GET", path=resource.path(), query=query, timeout=10.0)
    try:
        async with client.transport.stream(request) as lines:
            # A server that does not know these parameters ignores them, and has nothing to say.
            async for line in lines:
                return "k8s.io/initial-events-end" in decode(line, _Event).object.metadata.annotations
    except (Invalid, BadRequest, Forbidden):
        pass
    return False


def _leading_number(text: str) -> int:
    found = re.match("[0-9]+", text)
    return int(found[0]) if found else 0
