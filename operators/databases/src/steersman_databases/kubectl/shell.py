"""``psql`` and ``mysql``: a shell of the server's own, in its own pod, without a password.

kubectl does what needs a terminal; nothing secret is on a command line.
"""

from __future__ import annotations

from collections.abc import Sequence

from steersman.api.core_v1 import Pod
from steersman.client import Client
from steersman.meta import ObjectKey, is_true
from steersman_databases.api import Cluster
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL, ROLE_LABEL, ClusterNames
from steersman_databases.engines.postgresql import patroni
from steersman_databases.engines.postgresql.hba import ADMINISTRATOR
from steersman_databases.kubectl.place import Refused, named, usage

CONTAINER = "server"
_MYSQL_SOCKET = "/run/steersman/mysqld.sock"


async def member_pod(
    client: Client, kind: type[Cluster], key: ObjectKey, instance: str = "", *, replica: bool = False
) -> str:
    """The pod of an instance, or of the primary, or of a replica; among several, one that is ready.

    The primary is the labelled pod of the status, or, where the operator has not followed yet, another labelled one.

    Raises:
        NotFound: there is no such cluster.
        ConfigurationError: it has no such instance.
        Refused: there is no primary, or no replica, now.
    """
    cluster = await client.get(kind, key)
    if instance:
        if (asked := _pod_of(key, instance)) is None:
            raise usage(f"cluster {named(key)} has no instance {instance}")
        return asked
    role = "replica" if replica else "primary"
    selector = f"{MEMBER_OF_LABEL}={key.name},{ROLE_LABEL}={role}"
    pods = await client.list(Pod, namespace=key.namespace, label_selector=selector)
    labelled = [pod for pod in pods.items if pod.metadata.deletion_timestamp is None]
    if not labelled:
        raise Refused(f"cluster {named(key)} has no {role} now: see kubectl steersman status {key.name}")
    primary = None if replica else _pod_of(key, cluster.status.primary or "")

    def rank(pod: Pod) -> tuple[bool, bool, str]:
        # A member that is cut off cannot take its label away: after a failover two are labelled as primary.
        name = pod.metadata.name
        return name != primary, not is_true(pod.status.conditions, "Ready"), name

    return min(labelled, key=rank).metadata.name


def _pod_of(key: ObjectKey, instance: str) -> str | None:
    number = ClusterNames(key).number(instance)
    return None if number is None else ClusterNames(key).pod(number).name


def psql(database: str, arguments: Sequence[str]) -> list[str]:
    """The command line in the pod."""
    where = [f"--host={patroni.RUN}", f"--username={ADMINISTRATOR}", f"--dbname={database}"]
    return ["psql", *where, *arguments]


def mysql(arguments: Sequence[str]) -> list[str]:
    """The command line in the pod. Without a locale, as in a container, the client takes all as Latin-1."""
    where = ["--user=root", f"--socket={_MYSQL_SOCKET}", "--default-character-set=utf8mb4"]
    return ["mysql", *where, *arguments]
