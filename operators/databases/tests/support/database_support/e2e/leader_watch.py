"""Who leads a cluster, by its members' own word, and since when."""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections.abc import Generator
from contextlib import contextmanager

from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import POSTGRESQL
from database_support.e2e.field_watch import FieldWatch, watching_command, watching_field
from devcluster.errors import CommandFailed


@contextmanager
def watching_leader(cluster: ClusterUnderTest, witness: str) -> Generator[FieldWatch]:
    """The pod that leads.

    Of PostgreSQL it is who has the lock. MySQL's agents learn it from their servers and then tell it: the time until
    they know is seen by asking a server only.

    Args:
        witness: an instance that stays.
    """
    if cluster.engine is POSTGRESQL:
        store = f"{cluster.name}-{cluster.engine.store}"
        with watching_field(cluster.namespace_client, "configmap", store, "{.metadata.annotations.leader}") as watch:
            yield watch
        return
    # What kubectl has started may go on without it: the loop ends with a file.
    going = f"/run/steersman/asking-{secrets.token_hex(3)}"
    script = f"touch {going}; while [ -e {going} ] && {_asked(cluster)}; do sleep 0.1; done"
    where = ("exec", f"{witness}-0", "--container=server", "--", "timeout", "5m", "sh", "-c", script)
    try:
        with watching_command(cluster.namespace_client, "who leads", *where) as watch:
            yield watch
    finally:
        with contextlib.suppress(CommandFailed):
            cluster.execute(witness, "rm", "-f", going)


def _asked(cluster: ClusterUnderTest) -> str:
    """The command by which MySQL's server tells it beside it."""
    names = " ".join(
        f"WHEN '{cluster.sql('SELECT @@server_uuid', instance=instance)}' THEN '{instance}-0'"
        for instance in cluster.nodes()
    )
    leads = f"SELECT CASE MEMBER_ID {names} END FROM performance_schema.replication_group_members"
    return shlex.join(cluster.engine.admin_command(f"{leads} WHERE MEMBER_ROLE = 'PRIMARY'", "mysql"))
