"""The object store of the devcluster, in its own network namespace.

    host ── steersman-store ══ host │store│ eth0 ══ store │fabric of the control plane│ … nodes, pods

It outlives the cluster, so that a new cluster can restore the backups of a removed one. `devcluster up` attaches it
to the cluster. It has no default route, as the machines of the cluster.
"""

import os
import shutil
import time
from pathlib import Path

import yaml

from devcluster import layout, lock, network
from devcluster.errors import DevclusterError, NotReady, NotRunning, Unsupported
from devcluster.kubectl import kubectl
from devcluster.machine import Machine
from devcluster.process import Process, run
from devcluster.progress import Progress
from devcluster.state import State
from devcluster.store import bucket, programs, servers
from devcluster.store.directory import StoreDirectory
from devcluster.store.object_store import ObjectStore
from devcluster.store.toxiproxy import Toxiproxy

DIRECTORY = Path("/var/lib") / (f"steersman-store-{layout.NAME}" if layout.NAME else "steersman-store")
LINK_NAME = f"ds-{layout.NAME}" if layout.NAME else "steersman-store"  # at most 15 characters
BRIDGE_PORT = "store"
ADDRESS = layout.NODE_NETWORK[5]
MAC_ADDRESS = "02:00:00:00:00:f0"  # neighbour caches stay valid after a restart
PORT = 9000
DEFAULT_VOLUME_MEBIBYTES = 20 * 1024
MIN_VOLUME_MEBIBYTES = 300  # of XFS

NAMESPACE = "object-store"
SERVICE = "store"
SERVICE_HOST = f"{SERVICE}.{NAMESPACE}.svc.{layout.CLUSTER_DOMAIN}"
_SERVER_ADDRESS = "127.0.0.1:7070"
_API_PORT = 8474

# The image is sparse: it has as many bytes as objects were ever stored.
_PREPARE = 'ip link set lo up && mount -o loop,nouuid "$volume.img" "$volume"'


def load() -> ObjectStore | None:
    """Return the running store, or None."""
    store = ObjectStore.load(DIRECTORY)
    return store if store is not None and store.is_running() else None


def start(
    progress: Progress, *, volume_mebibytes: int = DEFAULT_VOLUME_MEBIBYTES, object_lock: bool = False
) -> ObjectStore:
    """Start the store and attach it to the cluster.

    A stopped store accepts connections again.

    Args:
        progress: shows the steps.
        volume_mebibytes: size of the volume; ignored if the store exists.
        object_lock: create the bucket with versions and object lock; ignored if the store exists.

    Raises:
        DevclusterError: if the volume is too small.
        NotRunning: without a cluster.
        Unsupported: without root, or without a Go that can build the programs.
        NotReady: if the store does not start, with the path of its log.
    """
    if volume_mebibytes < MIN_VOLUME_MEBIBYTES:
        raise DevclusterError(f"A volume of {volume_mebibytes} MiB is too small: use {MIN_VOLUME_MEBIBYTES} or more")
    if os.geteuid() != 0:
        raise Unsupported("The store needs root, for namespaces and mounts. Without root, use: --local")
    built = programs.ensure(progress)
    with lock.exclusive(layout.LOCK):
        state = State.load()
        if state is None or not state.alive():
            raise NotRunning("There is no running cluster: run devcluster up, or start the store with --local")
        store = load()
        if store is None:
            _remove_leftovers()
            network.detach_machine(state.control_plane, BRIDGE_PORT)
            with progress.step("Start the object store"):
                store = _start(built, volume_mebibytes, object_lock=object_lock)
        store.start()
        attach(state)
    return store


def remove() -> bool:
    """End the store and delete all objects.

    Returns True if there was a store.
    """
    with lock.exclusive(layout.LOCK):
        if not DIRECTORY.exists():
            return False
        _remove_leftovers()
        shutil.rmtree(DIRECTORY)
    return True


def attach(state: State) -> None:
    """Attach the running store, unless it is attached already."""
    store = load()
    if store is None:
        return
    machine = _machine(store.server)
    network.attach_machine(state.control_plane, machine, BRIDGE_PORT, ADDRESS, MAC_ADDRESS)
    network.route_pods(machine, state.nodes)
    kubectl(
        state.binaries,
        ["apply", "--server-side", "--force-conflicts", "--filename=-"],
        stdin=yaml.safe_dump_all(_service(), sort_keys=False),
    )


def _remove_leftovers() -> None:
    """End the remaining processes of the store."""
    store = ObjectStore.load(DIRECTORY)
    if store is not None:
        store.terminate()
        store.directory.state.unlink()
    network.remove_link(LINK_NAME)


def _start(built: programs.Programs, volume_mebibytes: int, *, object_lock: bool) -> ObjectStore:
    directory = StoreDirectory(DIRECTORY)
    link_addresses = [str(candidate[2]) for candidate in layout.LINK_CANDIDATES]
    service_names = (SERVICE_HOST, f"{SERVICE}.{NAMESPACE}.svc", f"{SERVICE}.{NAMESPACE}")
    directory.create([*service_names, str(ADDRESS), *link_addresses])
    image = DIRECTORY / "volume.img"
    if not image.exists():
        _create_volume(image, volume_mebibytes)
    command = servers.server_script(
        directory, servers.server_command(built, directory, _SERVER_ADDRESS), prepare=_PREPARE
    )
    unshare = ["unshare", "--net", "--mount", "--propagation", "slave", "--"]
    started = [servers.launch_detached([*unshare, *command], directory.log("versitygw"))]
    try:
        _wait_until_isolated(started[0])
        machine = _machine(started[0])
        link = network.find_free_link()
        network.connect_host(machine, link, LINK_NAME)
        api = Toxiproxy(str(link[2]), _API_PORT)
        proxy_command = servers.proxy_command(built, api.host, api.port)
        started.append(servers.launch_detached(machine.in_network(proxy_command), directory.log("toxiproxy")))
        api.wait_until_ready(started[1])
        api.create(f":{PORT}", _SERVER_ADDRESS)
        servers.wait_until_ready(started[0], str(link[2]), PORT, directory)
        store = ObjectStore(
            directory,
            *started,
            host_endpoint=f"https://{link[2]}:{PORT}",
            endpoint=f"https://{SERVICE_HOST}:{PORT}",
            toxiproxy=api,
            volume_limited=True,
        )
        bucket.ensure(built, store, object_lock=object_lock)
    except BaseException:
        for process in started:
            process.terminate(grace=0)
        raise
    store.save()
    return store


def _create_volume(image: Path, mebibytes: int) -> None:
    unfinished = image.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        file.truncate(mebibytes << 20)
    run(["mkfs.xfs", "-q", "-f", str(unfinished)])
    unfinished.rename(image)


def _wait_until_isolated(server: Process, seconds: float = 5.0) -> None:
    """Wait until the process has its own network. Raises NotReady."""
    deadline = time.monotonic() + seconds
    own = Path("/proc/self/ns/net").readlink()
    while True:
        try:
            if Path(f"/proc/{server.pid}/ns/net").readlink() != own:
                return
        except FileNotFoundError:
            pass
        if not server.alive() or time.monotonic() > deadline:
            raise NotReady(f"the object store does not start; see {StoreDirectory(DIRECTORY).log('versitygw')}")
        time.sleep(0.01)


def _machine(server: Process) -> Machine:
    """Return the store as a machine: versitygw owns the namespaces."""
    return Machine("store", server)


def _service() -> list[dict[str, object]]:
    """Return the Service that gives the store a name in the cluster."""
    metadata = {"name": SERVICE, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": SERVICE}}
    port = {"name": "https", "port": PORT, "protocol": "TCP"}
    family = f"IPv{layout.IP_FAMILY}"
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [port]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata,
            "addressType": family,
            "endpoints": [{"addresses": [str(ADDRESS)], "conditions": {"ready": True}}],
            "ports": [port],
        },
    ]
