"""Container that runs the SQL for a new database: the engine-independent part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steersman.api.apply import core

from .cluster_engine import DeclaredCluster, SqlSource

FILES_DIRECTORY = "/var/lib/steersman/post-init"
"""Mount path of the SQL files, each at `file_of` its source."""
CA_DIRECTORY = "/var/lib/steersman/tls"
"""Mount path of the Secret for applications, for its `ca.crt`."""


def file_of(source: SqlSource) -> str:
    """Return the path of a source's file below `FILES_DIRECTORY`.

    Error messages contain it.
    """
    return f"{source.kind.lower()}/{source.name}/{source.key}"


def primary_host(cluster: DeclaredCluster) -> str:
    """Return the host name of the primary."""
    service = cluster.names.service("rw")
    return f"{service.name}.{service.namespace}.svc"


def client_container(
    cluster: DeclaredCluster, client: str, command: Sequence[str], environment: Mapping[str, str], *, variable: str
) -> core.Container:
    """Return a container that runs the client as the database's owner.

    Its working directory is `FILES_DIRECTORY`.

    Args:
        client: name of the container.
        variable: environment variable in which the client finds the owner's password.
    """
    secret = core.SecretKeySelector(name=cluster.names.application_secret.name, key="password")
    return core.Container(
        name=client,
        command=[_literal(argument) for argument in command],
        working_dir=FILES_DIRECTORY,
        env=[
            *(core.EnvVar(name=name, value=_literal(value)) for name, value in environment.items()),
            core.EnvVar(name=variable, value_from=core.EnvVarSource(secret_key_ref=secret)),
        ],
        volume_mounts=[
            core.VolumeMount(name="sql", mount_path=FILES_DIRECTORY, read_only=True),
            core.VolumeMount(name="application", mount_path=CA_DIRECTORY, read_only=True),
        ],
    )


def _literal(text: str) -> str:
    """Escape `$`, because Kubernetes expands variables in commands and environments."""
    return text.replace("$", "$$")
