"""Minor version skew: different servers with the same image name.

The tag was moved. A node keeps the image of a tag, and pulls it again only with pull policy `Always`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from steersman_databases.cluster.state import ClusterState, Instance
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.server_pod import server_statuses
from steersman_databases.engines.versions import version_tuple


def older(state: ClusterState) -> Sequence[Instance]:
    """Instances that are older than another one with the same image name."""
    return [i for i in state.instances if any(_is_newer(another, i) for another in state.instances)]


def should_recreate(cluster: DeclaredCluster, state: ClusterState, instance: Instance) -> bool:
    """Return True if a new pod would run the newer image.

    Its node pulls it, and last did so before. So that happens once, whatever the registry responds. Without pulls
    it would change nothing.
    """
    if cluster.waits_for_window:
        return False
    if not cluster.automatic_minor_upgrades or cluster.pod_settings.image_pull_policy != "Always":
        return False
    started_at = _started_at(instance)
    newer = (_started_at(other) for other in state.instances if _is_newer(other, instance))
    return started_at is not None and any(other is not None and started_at < other for other in newer)


def by_version(state: ClusterState, image: str) -> Sequence[tuple[str, Sequence[Instance]]]:
    """Versions under an image name, oldest first, with their instances."""
    of_image = [i for i in state.instances if i.image == image and _version(i)]
    versions = {i.member.version for i in of_image if i.member is not None}
    return [
        (version, [i for i in of_image if i.member is not None and i.member.version == version])
        for version in sorted(versions, key=version_tuple)
    ]


def _is_newer(one: Instance, other: Instance) -> bool:
    return one.image == other.image and () < _version(other) < _version(one)


def _version(instance: Instance) -> tuple[int, ...]:
    """Version of an instance; empty if unknown. Foreign pods are ignored."""
    return version_tuple(instance.member.version) if instance.member is not None and instance.is_controlled else ()


def _started_at(instance: Instance) -> datetime | None:
    """Last start of its server's container, when its image was resolved."""
    containers = () if instance.pod is None else server_statuses(instance.pod)
    running = next((c.state.running for c in containers), None)
    return None if running is None else running.started_at
