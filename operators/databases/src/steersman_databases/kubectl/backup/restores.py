"""Restores of whole clusters for ``kubectl steersman``: plan, confirm, wait."""

from __future__ import annotations

from datetime import UTC, datetime

from steersman.client import Client, MergePatch
from steersman.errors import NotFound
from steersman.meta import Duration, FrozenStruct, ObjectKey, ObjectMeta
from steersman_databases.api import MySQLCluster, Restore, RestoreSpec
from steersman_databases.api.backups.backup_common import RecoveryTarget
from steersman_databases.api.backups.restore import RestoreClusterReference, RestorePlan, UndoneRestore
from steersman_databases.api.references import ClusterKind
from steersman_databases.core.sizes import format_bytes
from steersman_databases.kubectl.command import OperationRejected
from steersman_databases.kubectl.lookup import find_cluster
from steersman_databases.kubectl.waiting import wait_until_done


class InPlaceReport(FrozenStruct):
    """A restore of a whole cluster as the command shows it."""

    name: str
    cluster: str
    phase: str
    message: str | None = None
    plan: RestorePlan | None = None


async def create(
    client: Client,
    key: ObjectKey,
    source: RecoveryTarget | UndoneRestore,
    name: str,
    keep_previous: Duration | None,
    *,
    over: bool = False,
) -> Restore:
    """Create a ``Restore`` of a whole cluster. Nothing happens before it is confirmed.

    Args:
        source: a target in the archive, or the restore to undo.
        name: of the object. Defaults to one with the present time.
        keep_previous: Defaults to that of the operator.
        over: True to restore over the present volumes.

    Raises:
        OperationRejected: the cluster has no archive.
    """
    cluster = await find_cluster(client, key)
    kind = type(cluster).api_resource.kind
    undo = source if isinstance(source, UndoneRestore) else None
    target = source if isinstance(source, RecoveryTarget) else None
    if target is not None and cluster.spec.backup is None:
        raise OperationRejected(f"{kind} {key.name} has no spec.backup, so there is no archive to restore from")
    engine: ClusterKind = "MySQLCluster" if isinstance(cluster, MySQLCluster) else "PostgreSQLCluster"
    reference = RestoreClusterReference(name=cluster.metadata.name, kind=engine)
    mode = "InPlace" if over else None
    spec = RestoreSpec(cluster_ref=reference, target=target, undo=undo, keep_previous=keep_previous, mode=mode)
    metadata = ObjectMeta(
        name=name or f"{key.name}-restore-{datetime.now(UTC):%Y%m%d%H%M%S}", namespace=key.namespace
    )
    return await client.create(Restore(metadata=metadata, spec=spec))


async def wait_until_planned(client: Client, restore: Restore, seconds: float) -> Restore:
    """Wait for the plan of a restore, and print the progress.

    Raises:
        OperationRejected: it failed, or was not planned in time.
    """
    name = f"restore {restore.metadata.name}"

    def progress(found: Restore) -> tuple[str, str] | None:
        phase, message = found.status.phase or "Pending", found.status.message or ""
        if phase == "Failed":
            raise OperationRejected(f"{name} failed: {message}")
        return (f"{phase}: ", message) if phase == "Pending" else None

    return await wait_until_done(client, restore, progress, seconds, f"{name} has no plan within {seconds:.0f} s")


async def confirm(client: Client, restore: Restore, plan: RestorePlan) -> Restore:
    """Start a planned restore."""
    return await client.patch(Restore, restore.key, MergePatch({"spec": {"confirm": plan.id}}))


async def discard(client: Client, restore: Restore) -> None:
    """Delete a restore that is not confirmed."""
    try:
        await client.delete(Restore, restore.key, uid=restore.metadata.uid)
    except NotFound:
        return


def report(restore: Restore) -> InPlaceReport:
    """A restore as it is shown."""
    status = restore.status
    return InPlaceReport(
        name=restore.metadata.name,
        cluster=restore.spec.cluster_ref.name,
        phase=status.phase or "Pending",
        message=status.message,
        plan=status.plan,
    )


def plan_lines(cluster: str, plan: RestorePlan) -> list[str]:
    """Return the text of a plan."""
    last = "unknown" if plan.restores_to is None else f"{plan.restores_to.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    size = "unknown" if plan.size_bytes is None else format_bytes(plan.size_bytes)
    lines = {
        "Cluster": cluster,
        "Backup": plan.backup_id,
        "Timeline": plan.timeline,
        "Kept volume": plan.volume,
        "Last commit": last,
        "Lost": f"all later commits{plan.lost_in_archive}",
        "Size": None if plan.volume is not None else size,
        "Volumes": None if plan.volume_bytes is None else f"{format_bytes(plan.volume_bytes)} for each instance",
        "Duration": None if plan.estimated_seconds is None else f"about {plan.estimated_seconds} s",
        "Plan": plan.id,
    }
    return [f"{name:<15}{value}" for name, value in lines.items() if value is not None]
