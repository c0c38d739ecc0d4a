"""Annotations in which members and operator tell each other things: read, and written if nobody else has since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from steersman.api.core_v1 import ConfigMap, Pod
from steersman.cache import CachedClient
from steersman.client import MergePatch
from steersman.meta import ObjectKey

from .cluster_names import ClusterNames
from .errors import ServerUnreachable
from .server import Endpoint
from .topology import Member, Members


def json_in(text: str | None, otherwise: Any = None) -> Any:
    """Annotations are anybody's to write, so what is no JSON counts as nothing."""
    try:
        return json.loads(text) if text else otherwise
    except ValueError:
        return otherwise


def mapping(value: Any) -> Mapping[str, Any]:
    """Empty where it is none."""
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}


def whole(value: Any) -> int | None:
    """None where it is no whole number."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def number_of(names: ClusterNames, pod: str) -> int | None:
    """Which instance's pod it is; None if it is none of the cluster's."""
    return names.number(pod.removesuffix("-0")) if pod.endswith("-0") else None


async def annotate(
    client: CachedClient, members: Members, key: ObjectKey, annotations: Mapping[str, str | None]
) -> None:
    """Writes to a ConfigMap of the store. Raises Conflict if it is not as ``members`` were observed any more."""
    metadata: dict[str, Any] = {"annotations": annotations}
    if (seen := members.store_versions.get(key.name)) is not None:
        metadata["resourceVersion"] = seen
    await client.live.patch(ConfigMap, key, MergePatch({"metadata": metadata}))


async def endpoint_of(client: CachedClient, member: Member, port: int) -> Endpoint:
    """Where a member's pod is asked itself. Raises ServerUnreachable."""
    pod = await client.get_or_none(Pod, member.pod)
    address = None if pod is None else pod.status.pod_ip
    if not address:
        raise ServerUnreachable(Endpoint(member.pod.name, port), "its pod has no address")
    return Endpoint(address, port)
