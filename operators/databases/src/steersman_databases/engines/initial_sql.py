"""What runs the SQL for a new database: the part that does not depend on the engine's client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steersman.api.apply import core

from .cluster import ClusterView, SqlSource

FILES = "/var/lib/steersman/initial"
"""Where the files with the SQL are mounted, each under `path_of` its source."""
AUTHORITY = "/var/lib/steersman/tls"
"""Where the Secret for applications is mounted, for its ``ca.crt``."""


def path_of(source: SqlSource) -> str:
    """The file of a source, below `FILES`; it stands in the words of an error."""
    return f"{source.kind.lower()}/{source.name}/{source.key}"


def host(cluster: ClusterView) -> str:
    """Where the primary is."""
    service = cluster.names.service("rw")
    return f"{service.name}.{service.namespace}.svc"


def container(
    cluster: ClusterView, client: str, command: Sequence[str], environment: Mapping[str, str], *, variable: str
) -> core.Container:
    """The client as the owner of the first database, in `FILES`.

    Args:
        client: the container's name.
        variable: in which the client finds the owner's password.
    """
    secret = core.SecretKeySelector(name=cluster.names.application_secret.name, key="password")
    return core.Container(
        name=client,
        command=[_literal(word) for word in command],
        working_dir=FILES,
        env=[
            *(core.EnvVar(name=name, value=_literal(value)) for name, value in environment.items()),
            core.EnvVar(name=variable, value_from=core.EnvVarSource(secret_key_ref=secret)),
        ],
        volume_mounts=[
            core.VolumeMount(name="sql", mount_path=FILES, read_only=True),
            core.VolumeMount(name="application", mount_path=AUTHORITY, read_only=True),
        ],
    )


def _literal(text: str) -> str:
    """Kubernetes puts variables into commands and environments, and makes one ``$`` of two."""
    return text.replace("$", "$$")
