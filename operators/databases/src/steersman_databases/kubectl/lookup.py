"""Lookup of a cluster by its name, whatever its engine.

Two clusters of one name in a namespace never both serve. There is a role for each kind, so users of one kind often
may not read the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steersman.client import Client
from steersman.errors import Forbidden, NotFound
from steersman.meta import ObjectKey
from steersman_databases.api import Cluster, MySQLCluster, PostgreSQLCluster
from steersman_databases.kubectl.command import print_note

_KINDS: Sequence[type[Cluster]] = (MySQLCluster, PostgreSQLCluster)


async def find_cluster(client: Client, key: ObjectKey) -> Cluster:
    """Return the cluster of this name, or the serving one of two.

    Raises:
        NotFound: there is none.
        Forbidden: none was found, and at least one kind is not readable. The message names each.
    """
    found: list[Cluster] = []
    missing: list[NotFound | Forbidden] = []
    for kind in _KINDS:
        try:
            found.append(await client.get(kind, key))
        except (NotFound, Forbidden) as error:
            missing.append(error)
    if not found:
        raise _combined(missing)
    return min(found, key=lambda each: not each.status.primary)


async def all_clusters(client: Client, namespace: str) -> list[Cluster]:
    """Return the clusters of a namespace, or of all namespaces.

    An empty name means all. A note names kinds that are not readable.

    Raises:
        Forbidden: no kind is readable.
    """
    ours: list[Cluster] = []
    refused: dict[type[Cluster], Forbidden] = {}
    for kind in _KINDS:
        try:
            ours += (await client.list(kind, namespace=namespace)).items
        except Forbidden as error:
            refused[kind] = error
    if len(refused) == len(_KINDS):
        raise _combined(list(refused.values()))
    for kind, error in refused.items():
        print_note(f"without {kind.api_resource.kind}s: {error}")
    return sorted(ours, key=lambda each: each.key)


def _combined(errors: Sequence[NotFound | Forbidden]) -> NotFound | Forbidden:
    """Return one error with all messages.

    It is Forbidden if one of them is, because the cluster may exist.
    """
    for error in errors:
        if isinstance(error, Forbidden):
            return Forbidden(msgspec.structs.replace(error.status, message="; ".join(map(str, errors))))
    return errors[-1]
