"""The cluster of a name, whichever engine's it is: two kinds of one name in a namespace never both serve.

There is a role for each kind, so who works with one may often not read the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from steersman.client import Client
from steersman.errors import Forbidden, NotFound
from steersman.meta import ObjectKey
from steersman_databases.api import Cluster, MySQLCluster, PostgreSQLCluster
from steersman_databases.kubectl.place import note

_KINDS: Sequence[type[Cluster]] = (MySQLCluster, PostgreSQLCluster)


async def find_cluster(client: Client, key: ObjectKey) -> Cluster:
    """The cluster; the one that serves where there are two.

    Raises:
        NotFound: there is none.
        Forbidden: none was found, and one kind at least may not be read: the message names each.
    """
    found: list[Cluster] = []
    missing: list[NotFound | Forbidden] = []
    for kind in _KINDS:
        try:
            found.append(await client.get(kind, key))
        except (NotFound, Forbidden) as error:
            missing.append(error)
    if not found:
        raise _of_all(missing)
    return min(found, key=lambda each: not each.status.primary)


async def all_clusters(client: Client, namespace: str) -> list[Cluster]:
    """Those of a namespace, or, where it is empty, of all. People are told of a kind that may not be read.

    Raises:
        Forbidden: no kind may be read.
    """
    ours: list[Cluster] = []
    refused: dict[type[Cluster], Forbidden] = {}
    for kind in _KINDS:
        try:
            ours += (await client.list(kind, namespace=namespace)).items
        except Forbidden as error:
            refused[kind] = error
    if len(refused) == len(_KINDS):
        raise _of_all(list(refused.values()))
    for kind, error in refused.items():
        note(f"without {kind.api_resource.kind}s: {error}")
    return sorted(ours, key=lambda each: each.key)


def _of_all(errors: Sequence[NotFound | Forbidden]) -> NotFound | Forbidden:
    """One error with the words of all where one of them is Forbidden: what was not found may be there."""
    for error in errors:
        if isinstance(error, Forbidden):
            return Forbidden(msgspec.structs.replace(error.status, message="; ".join(map(str, errors))))
    return errors[-1]
