"""The cluster as its users see it: up, down, status, and the faults that tests cause.

Only one change goes on at a time on a machine, whatever number of checkouts and processes ask for one.
"""

import os
import platform
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster import binaries, containers, controlplane, layout, lock, network, node, packages
from devcluster import create as creation
from devcluster import remove as removal
from devcluster import state as states
from devcluster.errors import DevclusterError, NotRunning, Unsupported
from devcluster.layout import NodeLayout
from devcluster.progress import Progress
from devcluster.state import State

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

WITHOUT_CLUSTER = """\
What still works here:
  - unit tests, which need nothing
  - integration tests: `devcluster build` makes etcd and kube-apiserver, which run alone, without root
  - demo and end-to-end tests on a cluster that you have (kind, a cloud): set CLUSTER=current"""


@dataclass(frozen=True)
class Status:
    """What there is on this machine.

    `running` means that every machine of the cluster lives; `ended` names the components that do not run, as in
    `control-plane/kube-scheduler`; `same_version` tells whether `up` would keep the cluster.
    """

    running: bool
    same_version: bool
    kubeconfig: Path
    binaries: Path | None
    logs: Path
    processes: dict[str, int]
    ended: list[str]
    cut_off: list[str]


def require() -> str:
    """Go's name of this machine's architecture. Raises Unsupported where no cluster can run, saying what can."""
    if sys.platform != "linux":
        raise Unsupported(f"The cluster needs Linux: it is made of namespaces.\n{WITHOUT_CLUSTER}")
    if os.geteuid() != 0:
        raise Unsupported(f"The cluster needs root, for namespaces, mounts and containers.\n{WITHOUT_CLUSTER}")
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise Unsupported(f"The cluster has not been tried on {platform.machine()}.\n{WITHOUT_CLUSTER}")
    return architecture


def kubeconfig_path() -> Path:
    """The administrator's kubeconfig of the cluster that this machine runs; there may be none yet."""
    return layout.KUBECONFIG


def api_server_address() -> str | None:
    """The address at which the host reaches the API server, for `NO_PROXY`; None if no cluster was made."""
    found = State.load()
    return None if found is None else str(found.link[2])


@contextmanager
def _alone(progress: Progress) -> Generator[None]:
    def waiting() -> None:
        progress.note("Another process changes the cluster; waiting for it.")

    with lock.exclusive(layout.LOCK, waiting):
        yield


def up(progress: Progress | None = None) -> Status:
    """Have a cluster: make it, keep it, mend it, or replace it if another version made it or it has died.

    Raises Unsupported where none can run, and NotReady or CommandFailed with the way to a log.
    """
    progress = progress or Progress()
    architecture = require()
    with ThreadPoolExecutor() as pool:
        installed = pool.submit(packages.ensure, progress)
        built = binaries.ensure(progress)
        installed.result()
    wanted = states.version()
    with _alone(progress):
        found = State.load()
        if found is not None and found.alive() and found.version == wanted:
            if found.binaries != built:  # those of the checkout that made it may be gone
                found.binaries = built
                found.save()
            started = creation.repair(found)
            if started:
                progress.note(f"Had ended and was started again: {', '.join(started)}")
            return _status(found)
        if removal.anything():
            with progress.step(f"Remove the cluster that is there: {_why(found, wanted)}"):
                removal.remove()
        return _status(creation.create(built, wanted, architecture, progress))


def _why(found: State | None, wanted: str) -> str:
    if found is None:
        return "it was never finished"
    if not found.alive():
        return "it was never finished" if not found.complete else "its processes have ended"
    return f"another version of devcluster made it ({found.version}, this is {wanted})"


def down(progress: Progress | None = None) -> bool:
    """End and remove the cluster and all that it made on this machine; whether there was one.

    Binaries and images stay in the cache. Raises Unsupported, or NotReady if something does not end.
    """
    progress = progress or Progress()
    require()
    with _alone(progress):
        if not removal.anything():
            return False
        with progress.step("Remove the cluster"):
            removal.remove()
        return True


def status() -> Status:
    """What there is now."""
    found = State.load()
    if found is None:
        return Status(False, False, layout.KUBECONFIG, None, layout.LOGS, {}, [], [])
    return _status(found)


def _status(found: State) -> Status:
    running = found.alive()
    processes: dict[str, int] = {}
    ended: list[str] = []
    for machine in found.machines.values():
        for name, process in machine.components.items():
            if machine.runs(name):
                processes[f"{machine.name}/{name}"] = process.pid
            else:
                ended.append(f"{machine.name}/{name}")
    cut_off = [
        each.name for each in layout.NODES if running and not network.node_link_is_up(found.control_plane, each)
    ]
    same = found.version == states.version()
    return Status(running, same, layout.KUBECONFIG, found.binaries, layout.LOGS, processes, ended, cut_off)


def _running() -> State:
    found = State.load()
    if found is None or not found.alive():
        raise NotRunning("there is no running cluster; make one with: devcluster up")
    return found


def _node(number: int) -> NodeLayout:
    for each in layout.NODES:
        if each.number == number:
            return each
    raise DevclusterError(f"there is no node {number}; there are {[each.number for each in layout.NODES]}")


def restart(component: str, number: int | None = None, *, graceful: bool = True) -> None:
    """End a component and start it again, and return when it is ready.

    `component` is one of the control plane's or, on the node `number` (1, 2, …), containerd, kubelet or kube-proxy.
    With `graceful=False` it is killed, as by a crash. Pods on the node run on, whichever component it is.
    Raises NotRunning without a cluster, DevclusterError for a name that is none.
    """
    with _alone(Progress()):
        found = _running()
        machine = found.control_plane if number is None else found.machines[_node(number).name]
        process = machine.components.get(component)
        if process is None:
            raise DevclusterError(f"{machine.name} has no {component}; it has {', '.join(machine.components)}")
        process.end(grace=10 if graceful else 0)
        if number is None:
            controlplane.start(machine, (component,), found.binaries)
            found.save()
            controlplane.wait_until_ready(machine, found.link)
        else:
            each = _node(number)
            containers.start(machine, each)
            node.start(machine, each, found.binaries)
            found.save()
            containers.wait_until_ready(machine, each)
            node.wait_until_ready(machine, each, found.binaries)


def restart_apiserver(*, graceful: bool = True) -> None:
    """End the API server and start it again; returns when it is ready. Otherwise as `restart`."""
    restart("kube-apiserver", graceful=graceful)


def stop_node(number: int) -> None:
    """Pull a node's cable (1, 2, …): its pods run on, out of reach, and after Kubernetes' own time it is NotReady.

    Raises NotRunning without a cluster, DevclusterError for a node that is none.
    """
    with _alone(Progress()):
        network.set_node_link(_running().control_plane, _node(number), up=False)


def start_node(number: int) -> None:
    """Plug the cable of a node in again. Raises as `stop_node`."""
    with _alone(Progress()):
        network.set_node_link(_running().control_plane, _node(number), up=True)
