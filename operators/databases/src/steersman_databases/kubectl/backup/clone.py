"""Command ``clone`` of ``kubectl steersman``: manifest of a clone."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
import yaml

from steersman.client import Client
from steersman.meta import ObjectKey, ObjectMeta, decode_builtins, to_builtins
from steersman_databases.api import Cluster, MySQLCluster
from steersman_databases.api.backups.backup_common import RecoveryClusterReference, RecoverySettings, RecoveryTarget
from steersman_databases.api.mysql_cluster import MySQLBootstrap
from steersman_databases.api.postgresql_cluster import Bootstrap
from steersman_databases.kubectl.command import CommandContext, on_cluster, parse_moment, print_note, usage_error
from steersman_databases.kubectl.lookup import find_cluster

_OWN_FIELDS = ("backup", "bootstrap", "hibernated", "recovery", "services", "tls")
"""Fields of the source that a clone must not share.

They are its addresses, certificates, archive and state.
"""
_SourceName = Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, help="The cluster to clone.")]
_CloneName = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the new cluster.")]


def clone_manifest(source: Cluster, key: ObjectKey, at: datetime | None) -> dict[str, Any]:
    """Return the manifest of a clone.

    Args:
        key: of the new cluster.
        at: the moment to recover to. None is the last recovery point.
    """
    reference = RecoveryClusterReference(
        name=source.metadata.name,
        namespace=None if source.metadata.namespace == key.namespace else source.metadata.namespace,
    )
    target = None if at is None else RecoveryTarget(time=at)
    recovery = RecoverySettings(cluster=reference, target=target)
    bootstrap = MySQLBootstrap if isinstance(source, MySQLCluster) else Bootstrap
    spec: dict[str, Any] = {k: v for k, v in to_builtins(source.spec).items() if k not in _OWN_FIELDS}
    resource = type(source).api_resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": to_builtins(ObjectMeta(name=key.name, namespace=key.namespace)),
        "spec": {**spec, "bootstrap": to_builtins(bootstrap(recovery=recovery))},
    }


@on_cluster
def clone_command(
    place: CommandContext,
    source: _SourceName,
    name: _CloneName,
    at: Annotated[str, typer.Option(help="Moment to recover to. Defaults to the last recovery point.")] = "",
    from_namespace: Annotated[str, typer.Option(help="Namespace of SOURCE. Defaults to that of NAME.")] = "",
    create: Annotated[bool, typer.Option("--create", help="Create the cluster instead of printing it.")] = False,
) -> None:
    """Print the manifest of a clone, recovered from an archive.

    Example: kubectl steersman clone shop shop-copy | kubectl apply -f -

    Example: kubectl steersman clone shop shop-before --at 2026-03-01T12:30:00Z --create
    """

    async def work(client: Client, namespace: str) -> dict[str, Any]:
        moment = parse_moment("--at", at) if at else None
        found = await find_cluster(client, ObjectKey(from_namespace or namespace, source))
        if found.spec.backup is None:
            raise usage_error(f"{source} has no archive to recover from. Declare spec.backup")
        manifest = clone_manifest(found, ObjectKey(namespace, name), moment)
        if create:
            await client.create(decode_builtins(manifest, type(found)))
        return manifest

    manifest = place.run(work)
    if create:
        print_note(f"{manifest['kind'].lower()}/{name} created")
        return
    place.print_output(manifest, lambda: typer.echo(yaml.safe_dump(manifest, sort_keys=False), nl=False))
