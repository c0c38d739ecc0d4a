"""`devcluster store`: an S3 object store with TLS, and its faults."""

import json
import os
import shutil
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from devcluster.errors import DevclusterError, NotRunning
from devcluster.progress import Progress
from devcluster.store import cluster_store, manifests, programs
from devcluster.store.local import start as start_local
from devcluster.store.object_store import ObjectStore

COMMAND = "devcluster store"
LOCAL_OPTION = " --local"
FAULTS_PANEL = "Faults, on purpose"
OBJECTS_PANEL = "Objects"
app = typer.Typer(no_args_is_help=True)

Local = Annotated[bool, typer.Option("--local", help="The store on loopback, without a cluster.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the objects in the manifest.")]
Seconds = Annotated[float | None, typer.Option(min=0, help="End the fault after these seconds, and wait for it.")]
VolumeSize = Annotated[
    int | None,
    typer.Option(min=1, help="Size of a new volume in MiB. Defaults to 20480. With --local: no limit, or in memory."),
]
Key = Annotated[str, typer.Argument(help="Key of the object, as `list-objects` prints it.")]


class OutputFormat(StrEnum):
    """Formats of the output."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Format of the output.")]


def local_directory() -> Path:
    """Return the directory of the local store.

    `$XDG_STATE_HOME/steersman/store`, or `~/.local/state/steersman/store` (XDG Base Directory Specification).
    """
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "steersman" / "store"


def _example(arguments: str) -> str:
    return f"Example: {COMMAND} {arguments}"


def _running(local: bool) -> ObjectStore:
    """Return the running store. Raises NotRunning."""
    store = ObjectStore.load(local_directory()) if local else cluster_store.load()
    if store is None or not store.is_running():
        raise NotRunning(
            f"The object store does not run. Start it with: {COMMAND} start{LOCAL_OPTION if local else ''}"
        )
    return store


def _progress() -> Progress:
    """Return the progress on standard error, since scripts read standard output."""
    return Progress(Console(stderr=True, highlight=False))


def _hold(seconds: float | None, end: Callable[[], None], command: str, local: bool) -> None:
    """Wait and end a fault, or print the command that ends it."""
    if seconds is None:
        typer.echo(f"It lasts until: {COMMAND} {command}{LOCAL_OPTION if local else ''}")
        return
    try:
        time.sleep(seconds)
    finally:
        end()


@app.command(epilog=_example("start --namespace shop"))
def start(
    namespace: Namespace = "default",
    local: Local = False,
    volume_size: VolumeSize = None,
    object_lock: Annotated[bool, typer.Option(help="Create the bucket with versions and object lock.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Start the store with bucket `backups`, and write a manifest for it.

    The first start builds the programs in 2 minutes. A stopped store accepts connections again.
    """
    if local:
        store = _start_local(volume_size, object_lock=object_lock)
    else:
        size = cluster_store.DEFAULT_VOLUME_MEBIBYTES if volume_size is None else volume_size
        store = cluster_store.start(_progress(), volume_mebibytes=size, object_lock=object_lock)
    _print_information(store, namespace, output)


def _start_local(volume_mebibytes: int | None, *, object_lock: bool) -> ObjectStore:
    programs.ensure(_progress())
    store = ObjectStore.load(local_directory())
    if store is not None and store.is_running():
        store.start()
        return store
    if store is not None:
        store.terminate()
    return start_local(local_directory(), volume_mebibytes=volume_mebibytes, object_lock=object_lock)


@app.command(epilog=_example("stop --seconds 60"))
def stop(local: Local = False, seconds: Seconds = None) -> None:
    """Refuse connections until `start`; the objects stay."""
    store = _running(local)
    store.stop()
    _hold(seconds, store.start, "start", local)


@app.command(epilog=_example("remove"))
def remove(local: Local = False) -> None:
    """End the store and delete all its objects. `devcluster down` does not."""
    directory = local_directory()
    if not local:
        removed = cluster_store.remove()
    elif removed := directory.exists():
        if store := ObjectStore.load(directory):
            store.terminate()
        shutil.rmtree(directory)
    typer.echo("The object store is gone." if removed else "There was no object store.")


@app.command(epilog=_example("info --namespace shop -o json"))
def info(namespace: Namespace = "default", local: Local = False, output: Output = OutputFormat.TEXT) -> None:
    """Print endpoint, bucket and files, and write the manifest again."""
    _print_information(_running(local), namespace, output)


@app.command(epilog=_example("status"))
def status(local: Local = False, output: Output = OutputFormat.TEXT) -> None:
    """Show processes, faults and free space.

    The exit code is 1 if the store does not run.
    """
    store = _running(local)
    usage = store.usage()
    _print(
        {
            "versitygw": store.server.pid,
            "toxiproxy": store.proxy.pid,
            "faults": store.faults(),
            "objects": len(store.keys()),
            "usedBytes": usage.used,
            "freeBytes": usage.free,
            "logs": str(store.directory.log("versitygw").parent),
        },
        output,
    )


@app.command(epilog=_example("build"))
def build() -> None:
    """Build versitygw and toxiproxy only.

    It needs Go, but neither root nor a cluster.
    """
    typer.echo(str(programs.ensure(_progress()).directory))


@app.command(rich_help_panel=FAULTS_PANEL, epilog=_example("blackhole --seconds 300"))
def blackhole(local: Local = False, seconds: Seconds = None) -> None:
    """Accept connections, but never respond; existing ones hang, too."""
    store = _running(local)
    store.blackhole()
    _hold(seconds, store.end_faults, "end-faults", local)


@app.command(rich_help_panel=FAULTS_PANEL, epilog=_example("throttle --bytes-per-second 1"))
def throttle(
    bytes_per_second: Annotated[int | None, typer.Option(min=1, help="For each connection and direction.")] = None,
    latency: Annotated[int | None, typer.Option(min=0, help="Delay of responses in milliseconds.")] = None,
    local: Local = False,
    seconds: Seconds = None,
) -> None:
    """Limit the bandwidth of each connection, or delay responses."""
    if bytes_per_second is None and latency is None:
        raise DevclusterError("throttle needs --bytes-per-second, --latency, or both")
    store = _running(local)
    store.throttle(bytes_per_second=bytes_per_second, latency_milliseconds=latency)
    _hold(seconds, store.end_faults, "end-faults", local)


@app.command(rich_help_panel=FAULTS_PANEL, epilog=_example("fill --seconds 3600"))
def fill(local: Local = False, seconds: Seconds = None) -> None:
    """Fill the volume, so that writes fail with InsufficientStorage."""
    store = _running(local)
    store.fill()
    _hold(seconds, store.end_faults, "end-faults", local)


@app.command(rich_help_panel=FAULTS_PANEL, epilog=_example("end-faults"))
def end_faults(local: Local = False) -> None:
    """End `blackhole`, `throttle` and `fill`."""
    _running(local).end_faults()


@app.command(rich_help_panel=OBJECTS_PANEL, epilog=_example("list-objects shop/"))
def list_objects(
    prefix: Annotated[str, typer.Argument(help="Only keys that start with it.")] = "", local: Local = False
) -> None:
    """Print the keys of all objects."""
    for key in _running(local).keys(prefix):
        typer.echo(key)


@app.command(
    rich_help_panel=OBJECTS_PANEL, epilog=_example("corrupt shop/postgresqlcluster.orders/…/000000010000000000000003")
)
def corrupt(key: Key, local: Local = False) -> None:
    """Change one bit of an object; size and time stay."""
    _running(local).corrupt(key)


@app.command(
    rich_help_panel=OBJECTS_PANEL, epilog=_example("delete-object shop/postgresqlcluster.orders/…/backup.info")
)
def delete_object(key: Key, local: Local = False) -> None:
    """Delete an object, even if it is locked."""
    _running(local).delete(key)


@app.command(epilog=_example("rotate-credentials --keep-previous --namespace shop"))
def rotate_credentials(
    keep_previous: Annotated[
        bool, typer.Option("--keep-previous", help="Accept the previous credentials until the next rotation.")
    ] = False,
    namespace: Namespace = "default",
    local: Local = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Replace the credentials, and write the manifest with the new ones."""
    store = _running(local)
    store.rotate_credentials(keep_previous=keep_previous)
    _print_information(store, namespace, output)


def _print_information(store: ObjectStore, namespace: str, output: OutputFormat) -> None:
    _print(
        {
            "endpoint": store.endpoint,
            "hostEndpoint": store.host_endpoint,
            "bucket": store.bucket,
            "region": store.region,
            "addressing": "Path",
            "caFile": str(store.ca_file),
            "credentialsFile": str(store.directory.credentials_file),
            "manifest": str(_write_manifest(store, namespace)),
        },
        output,
    )
    if output is OutputFormat.TEXT:
        typer.echo(f"\nTry next: kubectl apply -f {store.directory.manifest}")


def _write_manifest(store: ObjectStore, namespace: str) -> Path:
    path = store.directory.manifest
    path.touch(mode=0o600)  # it contains the credentials
    path.write_text(manifests.render(store, namespace))
    return path


def _print(values: dict[str, str | int | list[str]], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(values, indent=2))
        return
    for name, value in values.items():
        text = ", ".join(value) or "none" if isinstance(value, list) else value
        typer.echo(f"  {name:<16} {text}")
