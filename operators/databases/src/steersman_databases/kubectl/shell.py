"""Database shells `psql` and `mysql` in the server's pod.

They need no password. kubectl provides the terminal. Command lines contain no secrets.
"""

from __future__ import annotations

from collections.abc import Sequence

from steersman.api.core_v1 import Pod
from steersman.client import Client
from steersman.meta import ObjectKey, is_true
from steersman_databases.api import Cluster
from steersman_databases.engines.naming import CLUSTER_LABEL, ROLE_LABEL, ClusterNames
from steersman_databases.engines.postgresql.config.hba import ADMINISTRATOR_ROLE
from steersman_databases.engines.postgresql.ha import patroni
from steersman_databases.kubectl.command import OperationRejected, qualified_name, usage_error

CONTAINER = "server"
_MYSQL_SOCKET = "/run/steersman/mysqld.sock"


async def member_pod(
    client: Client, kind: type[Cluster], key: ObjectKey, instance: str = "", *, replica: bool = False
) -> str:
    """Return the pod of an instance, the primary, or a replica.

    Ready pods come first. The primary is the pod of the status if it has the label, or else another one with it.

    Raises:
        NotFound: there is no such cluster.
        ConfigurationError: it has no such instance.
        OperationRejected: there is no primary, or no replica, now.
    """
    cluster = await client.get(kind, key)
    if instance:
        if (requested := _pod_of(key, instance)) is None:
            raise usage_error(f"cluster {qualified_name(key)} has no instance {instance}")
        return requested
    role = "replica" if replica else "primary"
    selector = f"{CLUSTER_LABEL}={key.name},{ROLE_LABEL}={role}"
    pods = await client.list(Pod, namespace=key.namespace, label_selector=selector)
    candidates = [pod for pod in pods.items if pod.metadata.deletion_timestamp is None]
    if not candidates:
        raise OperationRejected(
            f"cluster {qualified_name(key)} has no {role}. See kubectl steersman status {key.name}"
        )
    primary = None if replica else _pod_of(key, cluster.status.primary or "")

    def rank(pod: Pod) -> tuple[bool, bool, str]:
        # A partitioned member cannot remove its label, so after a failover two pods have the primary's label.
        name = pod.metadata.name
        return name != primary, not is_true(pod.status.conditions, "Ready"), name

    return min(candidates, key=rank).metadata.name


def _pod_of(key: ObjectKey, instance: str) -> str | None:
    ordinal = ClusterNames(key).ordinal(instance)
    return None if ordinal is None else ClusterNames(key).pod(ordinal).name


def psql_arguments(database: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line in the pod."""
    where = [f"--host={patroni.RUN}", f"--username={ADMINISTRATOR_ROLE}", f"--dbname={database}"]
    return ["psql", *where, *arguments]


def mysql_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the command line in the pod.

    Without a locale, as in a container, the client treats text as Latin-1.
    """
    where = ["--user=root", f"--socket={_MYSQL_SOCKET}", "--default-character-set=utf8mb4"]
    return ["mysql", *where, *arguments]
