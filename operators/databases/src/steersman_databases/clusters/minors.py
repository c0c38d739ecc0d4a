"""Servers of different minor versions whose pods name one image: its tag was given to another meanwhile.

A node keeps what it has of a tag, and asks the registry again only where the pull policy is ``Always``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.versions import ordered


def behind(observed: Observed) -> Sequence[Instance]:
    """Those that are older than another of their image."""
    return [i for i in observed.instances if any(_is_newer(other, i) for other in observed.instances)]


def catches_up(cluster: ClusterView, observed: Observed, instance: Instance) -> bool:
    """Whether it is made anew to be as new as another of its image: where its node asks, and last did so before.

    So that happens once, whatever the registry answers. And where nodes do not ask, it would change nothing.
    """
    if not cluster.upgrades_minor or cluster.pods.image_pull_policy != "Always":
        return False
    began = _began(instance)
    newer = (_began(other) for other in observed.instances if _is_newer(other, instance))
    return began is not None and any(other is not None and began < other for other in newer)


def by_version(observed: Observed, image: str) -> Sequence[tuple[str, Sequence[Instance]]]:
    """The versions that run by the name of an image, the oldest first, and who runs each."""
    of_image = [i for i in observed.instances if i.image == image and _version(i)]
    versions = {i.member.version for i in of_image if i.member is not None}
    return [
        (version, [i for i in of_image if i.member is not None and i.member.version == version])
        for version in sorted(versions, key=ordered)
    ]


def _is_newer(one: Instance, other: Instance) -> bool:
    return one.image == other.image and () < _version(other) < _version(one)


def _version(instance: Instance) -> tuple[int, ...]:
    """Nothing where nobody knows: a stranger's pod is not asked."""
    return ordered(instance.member.version) if instance.member is not None and instance.is_own else ()


def _began(instance: Instance) -> datetime | None:
    """When its server's container was started last, for which its image was looked up."""
    containers = () if instance.pod is None else instance.pod.status.container_statuses
    running = next((c.state.running for c in containers), None)
    return None if running is None else running.started_at
