"""An object store on loopback, for tests without a cluster."""

import os
import random
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from devcluster.errors import CommandFailed, NotReady
from devcluster.process import run
from devcluster.store import bucket, programs, servers
from devcluster.store.directory import StoreDirectory
from devcluster.store.object_store import ObjectStore
from devcluster.store.toxiproxy import Toxiproxy

# pgBackRest compares DNS names of a certificate only, so clients use the name and not the address.
HOST = "localhost"
_SERVER_NAMES = (HOST, "127.0.0.1")
_PORT_ATTEMPTS = 10


@contextmanager
def local_store(
    directory: Path, *, volume_mebibytes: int | None = None, object_lock: bool = False
) -> Generator[ObjectStore]:
    """Run an object store on loopback during the block.

    Its processes end with the block, and with this process, however it ends.

    Args:
        directory: where certificates, objects and logs are; it is created.
        volume_mebibytes: size of the volume, which is then in memory. `ObjectStore.fill` needs it, and it needs
            `supports_limited_volumes`. Defaults to None, the file system of `directory`.
        object_lock: create the bucket with versions and object lock. Defaults to False.

    Raises:
        Unsupported: without a Go that can build the programs.
        NotReady: if the store does not start, with the path of its log.
    """
    store = start(directory, volume_mebibytes=volume_mebibytes, object_lock=object_lock, detached=False)
    try:
        yield store
    finally:
        store.terminate()


def start(
    directory: Path, *, volume_mebibytes: int | None = None, object_lock: bool = False, detached: bool = True
) -> ObjectStore:
    """Start an object store on loopback. Arguments and exceptions as for `local_store`.

    A `detached` store outlives this process.
    """
    built = programs.ensure()
    paths = StoreDirectory(directory.absolute())
    paths.create(_SERVER_NAMES)
    launch = servers.launch_detached if detached else servers.launch_child
    internal_host = _random_loopback_address()

    def command(program: list[str]) -> list[str]:
        return program if detached else servers.follow_parent(program)

    server_port = _random_port()
    server_command = command(servers.server_command(built, paths, f"{internal_host}:{server_port}"))
    server_command = servers.server_script(paths, server_command, _mount_command(volume_mebibytes))
    server = launch([*_own_mounts(volume_mebibytes), *server_command], paths.log("versitygw"))
    api = Toxiproxy(internal_host, _random_port())
    proxy = launch(command(servers.proxy_command(built, api.host, api.port)), paths.log("toxiproxy"))
    try:
        api.wait_until_ready(proxy)
        port = _listen(api, f"{internal_host}:{server_port}")
        servers.wait_until_ready(server, HOST, port, paths)
        endpoint = f"https://{HOST}:{port}"
        store = ObjectStore(paths, server, proxy, endpoint, endpoint, api, volume_mebibytes is not None)
        bucket.ensure(built, store, object_lock=object_lock)
    except BaseException:
        for process in (proxy, server):
            process.terminate(grace=0)
        raise
    store.save()
    return store


def supports_limited_volumes() -> bool:
    """Return True if this process may mount. Most containers may not."""
    try:
        run([*_own_mounts(1), "mount", "-t", "tmpfs", "none", "/tmp"])  # noqa: S108 - in a mount namespace of its own
    except CommandFailed:
        return False
    return True


def _own_mounts(volume_mebibytes: int | None) -> list[str]:
    """Return the command prefix that permits a mount.

    Users other than root need a user namespace for it.
    """
    if volume_mebibytes is None:
        return []
    user_options = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user_options, "--mount", "--propagation", "slave", "--"]


def _mount_command(volume_mebibytes: int | None) -> str:
    """Return the shell command that mounts the volume.

    versitygw stores metadata in extended attributes, which tmpfs supports since Linux 6.6.
    """
    if volume_mebibytes is None:
        return ""
    return f'mount -t tmpfs -o size={volume_mebibytes}m,mode=0700 objects "$volume"'


def _listen(api: Toxiproxy, upstream: str) -> int:
    """Make the proxy listen on loopback and return its port."""
    for _ in range(_PORT_ATTEMPTS):
        port = _random_port()
        try:
            api.create(f"127.0.0.1:{port}", upstream)
        except CommandFailed:
            continue
        return port
    raise NotReady("the object store found no free port on 127.0.0.1")


def _random_loopback_address() -> str:
    """Return an address of 127.0.0.0/8 that is probably unused."""
    return f"127.{random.randint(1, 254)}.{random.randint(0, 255)}.{random.randint(1, 254)}"  # noqa: S311


def _random_port() -> int:
    """Return a port outside the range of outgoing connections.

    Linux would otherwise assign it to a connection while the store is stopped.
    """
    return random.randint(15000, 32000)  # noqa: S311
