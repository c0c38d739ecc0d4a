"""Annotations that members and the operator exchange, written with a precondition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from steersman.api.core_v1 import ConfigMap, Pod
from steersman.cache import CachedClient
from steersman.client import MergePatch
from steersman.meta import ObjectKey

from .errors import ServerUnreachable
from .members import Member, Members
from .naming import ClusterNames
from .server import ServerEndpoint

_MAX_TIME = 1 << 36
"""Seconds since the epoch that `datetime` can represent."""


def parse_json(text: str | None, default: Any = None) -> Any:
    """Parse JSON, or return `default` if it is invalid.

    Anyone with access may write annotations.
    """
    try:
        return json.loads(text) if text else default
    except ValueError:
        return default


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value, or an empty mapping if it is not one."""
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}


def parse_int(value: Any) -> int | None:
    """Return the value as an integer, or None."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def parse_times(value: Any, limit: int) -> tuple[datetime, ...]:
    """Return the last times of a list, sorted. Malformed ones are ignored.

    They are in seconds since the epoch.
    """
    seconds = (parse_int(each) for each in cast(Sequence[Any], value)[-limit:]) if isinstance(value, list) else ()
    return tuple(datetime.fromtimestamp(each, UTC) for each in sorted(filter(None, seconds)) if 0 < each < _MAX_TIME)


def ordinal_of_pod(names: ClusterNames, pod: str) -> int | None:
    """Return the instance of this pod.

    None if the pod does not belong to the cluster.
    """
    return names.ordinal(pod.removesuffix("-0")) if pod.endswith("-0") else None


async def annotate(
    client: CachedClient, members: Members, key: ObjectKey, annotations: Mapping[str, str | None]
) -> None:
    """Write annotations of a ConfigMap of the members.

    Raises:
        Conflict: the ConfigMap has changed since `members` was observed.
    """
    metadata: dict[str, Any] = {"annotations": annotations}
    if (observed_version := members.dcs_versions.get(key.name)) is not None:
        metadata["resourceVersion"] = observed_version
    await client.live.patch(ConfigMap, key, MergePatch({"metadata": metadata}))


async def endpoint_of(client: CachedClient, member: Member, port: int) -> ServerEndpoint:
    """Return the address of a member's pod. Raises ServerUnreachable."""
    pod = await client.get_or_none(Pod, member.pod)
    address = None if pod is None else pod.status.pod_ip
    if not address:
        raise ServerUnreachable(ServerEndpoint(member.pod.name, port), "its pod has no IP address")
    return ServerEndpoint(address, port)
