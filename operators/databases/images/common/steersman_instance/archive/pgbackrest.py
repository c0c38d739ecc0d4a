"""pgBackRest's configuration, rendered from the store file, and its commands.

The image links ``/etc/pgbackrest/pgbackrest.conf`` to the rendered file. So every call of pgBackRest finds it, also
one that a backup Job starts over the TLS server. Source: pgBackRest's configuration reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ..files import replace_file
from ..paths import PATHS, InstancePaths
from .store_file import Store

STANZA = "main"
SERVER_PORT = 8432
CLIENT_NAME = "steersman_backup"
"""Common name of the client certificate that backup Jobs present."""

REPOSITORY_DIRECTORY = "pgbackrest"
PROCESS_TIMEOUT_SECONDS = 5  # of one read or write of a socket in archive-push; longer deadlines are the caller's


def configuration_directory(paths: InstancePaths = PATHS) -> Path:
    """Return the directory of the rendered files. It is in memory and lost with the pod."""
    return paths.backup_run / "pgbackrest"


def configuration_file(paths: InstancePaths = PATHS) -> Path:
    """Return the rendered configuration."""
    return configuration_directory(paths) / "pgbackrest.conf"


def write_configuration(store: Store, paths: InstancePaths = PATHS) -> Path:
    """Render the configuration with mode 0600. Return its path.

    Processes may call it at the same time: the file is replaced as a whole.
    """
    directory = configuration_directory(paths)
    if store.ca:
        replace_file(directory / "store-ca.crt", store.ca)
    if store.service == "gcs" and store.secret_access_key:
        replace_file(directory / "gcs-key.json", store.secret_access_key)
    file = configuration_file(paths)
    replace_file(file, render_configuration(store, paths))
    return file


def render_configuration(store: Store, paths: InstancePaths = PATHS) -> str:
    """Return the content of ``pgbackrest.conf``. It contains the credentials."""
    directory = configuration_directory(paths)
    options: dict[str, str] = {
        "repo1-path": f"/{store.root}/{REPOSITORY_DIRECTORY}",
        **dict(_repository(store, directory)),
        **_encryption(store),
        # Small files share an object, and an incremental backup stores only changed blocks.
        "repo1-bundle": "y",
        "repo1-block": "y",
        "compress-type": "zst",
        "compress-level": "3",
        # The archiver of a replica runs as well: archive_mode is `always`.
        "archive-mode-check": "n",
        "lock-path": str(directory),
        "spool-path": str(directory / "spool"),
        "log-path": str(directory),
        "log-level-file": "off",
        "log-level-console": "warn",
        "log-level-stderr": "off",
    }
    server = {
        "tls-server-address": "*",
        "tls-server-port": str(SERVER_PORT),
        "tls-server-cert-file": str(paths.tls / "tls.crt"),
        "tls-server-key-file": str(paths.tls / "tls.key"),
        "tls-server-ca-file": str(paths.peer / "ca.crt"),
        "tls-server-auth": f"{CLIENT_NAME}={STANZA}",
    }
    stanza = {
        "pg1-path": str(paths.postgresql_data),
        "pg1-socket-path": str(paths.run),
        "pg1-port": "5432",
        "pg1-user": "postgres",
    }
    sections = {"global": options, "global:server": server, STANZA: stanza}
    return "\n".join(line for name, values in sections.items() for line in _section(name, values))


def _section(name: str, values: Mapping[str, str]) -> Iterator[str]:
    yield f"[{name}]"
    yield from (f"{key}={value}" for key, value in values.items())
    yield ""


def _repository(store: Store, directory: Path) -> Iterator[tuple[str, str]]:
    yield "repo1-type", store.service
    if store.ca:
        yield "repo1-storage-ca-file", str(directory / "store-ca.crt")
    match store.service:
        case "s3":
            yield from _s3(store)
        case "gcs":
            yield "repo1-gcs-bucket", store.bucket
            if store.workload_identity:
                yield "repo1-gcs-key-type", "auto"
            else:
                yield "repo1-gcs-key-type", "service"
                yield "repo1-gcs-key", str(directory / "gcs-key.json")
        case "azure":
            yield "repo1-azure-container", store.bucket
            yield "repo1-azure-account", store.account
            # The operator rejects workload identity: `auto` is the identity of the node.
            yield "repo1-azure-key-type", "shared"
            yield "repo1-azure-key", store.secret_access_key


def _s3(store: Store) -> Iterator[tuple[str, str]]:
    yield "repo1-s3-bucket", store.bucket
    yield "repo1-s3-region", store.region
    yield "repo1-s3-endpoint", store.endpoint or f"s3.{store.region}.amazonaws.com"
    # A bucket's name as a host name needs a wildcard certificate, which only AWS has for certain.
    path_style = store.addressing == "Path" or (store.addressing == "Auto" and bool(store.endpoint))
    yield "repo1-s3-uri-style", "path" if path_style else "host"
    if store.workload_identity:
        # Not `auto`, which is the identity of the node.
        yield "repo1-s3-key-type", "web-id"
        return
    yield "repo1-s3-key", store.access_key_id
    yield "repo1-s3-key-secret", store.secret_access_key
    if store.session_token:
        yield "repo1-s3-token", store.session_token


def _encryption(store: Store) -> dict[str, str]:
    if not store.passphrase:
        return {"repo1-cipher-type": "none"}
    return {"repo1-cipher-type": "aes-256-cbc", "repo1-cipher-pass": store.passphrase}
