"""Jobs in the pod of an instance, without a running server."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from steersman.api.apply import core


def instance_container(pod: core.PodSpec) -> core.Container:
    """Return the container of the server."""
    assert not isinstance(pod.containers, UnsetType)
    return pod.containers[0]


def run_once(pod: core.PodSpec, name: str, command: Sequence[str]) -> core.PodSpec:
    """Return the pod of an instance with one container for ``command``.

    Args:
        pod: the pod of an instance that starts no server.
        name: of the container.
    """
    container = msgspec.structs.replace(
        instance_container(pod),
        name=name,
        command=command,
        ports=UNSET,
        # Programs report there why they end. One that was killed has only its logs.
        termination_message_policy="FallbackToLogsOnError",
    )
    return msgspec.structs.replace(
        pod, restart_policy="Never", containers=[container], termination_grace_period_seconds=30
    )
