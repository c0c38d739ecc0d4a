"""The cluster as its users see it: up, down, status, and the faults that tests cause.

Only one change goes on at a time on a machine, whatever number of checkouts and processes ask for one.
"""

import os
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster import architecture, binaries, containers, controlplane, layout, lock, metrics, network, packages
from devcluster import create as creation
from devcluster import remove as removal
from devcluster import state as states
from devcluster.errors import DevclusterError, NotRunning, Unsupported
from devcluster.layout import NodeLayout
from devcluster.machine import Machine
from devcluster.progress import Progress
from devcluster.state import State

WITHOUT_CLUSTER = """\
What still works here:
  - unit tests, which need nothing
  - integration tests: `devcluster build` makes etcd and kube-apiserver, which run alone, without root
  - demo and end-to-end tests on a cluster that you have (kind, a cloud): set CLUSTER=current"""


@dataclass(frozen=True)
class Status:
    """What there is on this machine.

    `running` means that the control plane does; `ended` names the components that do not run, as in
    `control-plane/kube-scheduler`, or machines as in `steersman-2`; `same_version` tells whether `up` would keep the
    cluster; `losing` maps a node's name to the shares of packets, in percent, that are lost to it and from it.
    """

    running: bool
    same_version: bool
    kubeconfig: Path
    binaries: Path | None
    logs: Path
    processes: dict[str, int]
    ended: list[str]
    cut_off: list[str]
    losing: dict[str, tuple[int, int]]


def require() -> str:
    """Go's name of this machine's architecture. Raises Unsupported where no cluster can run, saying what can."""
    if sys.platform != "linux":
        raise Unsupported(f"The cluster needs Linux: it is made of namespaces.\n{WITHOUT_CLUSTER}")
    if os.geteuid() != 0:
        raise Unsupported(f"The cluster needs root, for namespaces, mounts and containers.\n{WITHOUT_CLUSTER}")
    if architecture.OWN not in architecture.MACHINES:
        raise Unsupported(f"The cluster has not been tried on {architecture.OWN}.\n{WITHOUT_CLUSTER}")
    return architecture.OWN


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


def up(progress: Progress | None = None, nodes: int | None = None) -> Status:
    """Have a cluster: make it, keep it, mend it, or replace it if another version made it.

    `nodes` is how many it is to have, 1 to 3; by default as many as it has, or two. A node that is removed never
    comes back; a new one has the images of the first. Raises Unsupported where none can run, NotReady or
    CommandFailed with the way to a log, DevclusterError for a number that cannot be.
    """
    progress = progress or Progress()
    processors = require()
    if nodes is not None and not 1 <= nodes <= len(layout.NODES):
        raise DevclusterError(f"a cluster has 1 to {len(layout.NODES)} nodes, not {nodes}")
    with ThreadPoolExecutor() as pool:
        installed = pool.submit(packages.ensure, progress)
        built = binaries.ensure(progress)
        installed.result()
    wanted = states.version()
    with _alone(progress):
        found = State.load()
        if found is not None and found.mendable() and (found.version, found.ip) == (wanted, layout.IP):
            found.binaries = built  # those of the checkout that made it may be gone
            found.save()
            _mend(found, nodes or len(found.nodes), progress)
            return _status(found)
        if removal.anything():
            with progress.step(f"Remove the cluster that is there: {_why(found, wanted)}"):
                removal.remove()
        made = State(wanted, network.free_link(), built, list(layout.NODES[: nodes or layout.DEFAULT_NODES]))
        creation.create(made, processors, progress)
        return _status(made)


def _mend(found: State, nodes: int, progress: Progress) -> None:
    started = creation.repair(found)
    if started:
        progress.note(f"Had ended and was started again: {', '.join(started)}")
    if nodes != len(found.nodes):
        with progress.step(f"Have {nodes} instead of {len(found.nodes)} nodes"):
            creation.resize(found, nodes)


def _why(found: State | None, wanted: str) -> str:
    if found is None or not found.complete:
        return "it was never finished"
    if not found.mendable():
        return "the machine was started anew"
    if found.ip != layout.IP:
        return f"it has addresses of IPv{found.ip}, and DEVCLUSTER_IP={layout.IP}"
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


def ensure_metrics(progress: Progress | None = None) -> None:
    """Have metrics-server in the running cluster, so that `kubectl top` works.

    Raises NotRunning without a cluster, Unsupported without Go, CommandFailed with the compiler's words.
    """
    metrics.ensure(_running().binaries, require(), progress or Progress())


def status() -> Status:
    """What there is now."""
    found = State.load()
    if found is None:
        return Status(False, False, layout.KUBECONFIG, None, layout.LOGS, {}, [], [], {})
    return _status(found)


def _status(found: State) -> Status:
    running = found.alive()
    processes: dict[str, int] = {}
    ended: list[str] = []
    for machine in found.machines.values():
        if found.complete and not machine.alive():
            ended.append(machine.name)
        for name, process in machine.components.items():
            if machine.runs(name):
                processes[f"{machine.name}/{name}"] = process.pid
            elif machine.alive():
                ended.append(f"{machine.name}/{name}")
    alive = [each for each in found.nodes if running and found.machines[each.name].alive()]
    cut_off = [each.name for each in alive if not network.node_link_is_up(found.control_plane, each)]
    lossy = {each.name: _losses(found, each) for each in alive}
    return Status(
        running,
        found.version == states.version(),
        layout.KUBECONFIG,
        found.binaries,
        layout.LOGS,
        processes,
        ended,
        cut_off,
        {name: losses for name, losses in lossy.items() if any(losses)},
    )


def _losses(found: State, each: NodeLayout) -> tuple[int, int]:
    return network.loss(found.machines[each.name], each), network.loss(found.control_plane, each)


def _running() -> State:
    found = State.load()
    if found is None or not found.alive():
        raise NotRunning("there is no running cluster; make one with: devcluster up")
    if found.ip != layout.IP:
        raise DevclusterError(f"its addresses are of IPv{found.ip}: set DEVCLUSTER_IP={found.ip}")
    return found


def _node(found: State, number: int) -> NodeLayout:
    for each in found.nodes:
        if each.number == number:
            return each
    raise DevclusterError(f"there is no node {number}; there are {[each.number for each in found.nodes]}")


def _machine(found: State, component: str, number: int | None) -> Machine:
    machine = found.control_plane if number is None else found.machines[_node(found, number).name]
    if component not in machine.components:
        raise DevclusterError(f"{machine.name} has no {component}; it has {', '.join(machine.components)}")
    return machine


def stop(component: str, number: int | None = None, *, graceful: bool = True) -> None:
    """End a component, and leave it so until `start` or `up`.

    `component` is one of the control plane's or, on the node `number` (1, 2, …), containerd, kubelet or kube-proxy.
    With `graceful=False` it is killed, as by a crash. Pods run on, whichever component it is.
    Raises NotRunning without a cluster, DevclusterError for a name that is none.
    """
    with _alone(Progress()):
        machine = _machine(_running(), component, number)
        machine.components[component].end(grace=10 if graceful else 0)


def start(component: str, number: int | None = None) -> None:
    """Start a component that has ended, and return when it is ready. Raises as `stop`, and NotReady with a log."""
    with _alone(Progress()):
        found = _running()
        machine = _machine(found, component, number)
        if number is None:
            controlplane.start(machine, (component,), found.binaries)
            found.save()
            controlplane.wait_until_ready(machine, found.link)
        else:
            creation.start_node(found, _node(found, number))


def restart(component: str, number: int | None = None, *, graceful: bool = True) -> None:
    """End a component and start it again, and return when it is ready. Otherwise as `stop`."""
    with without(component, number, graceful=graceful):
        pass


@contextmanager
def without(component: str, number: int | None = None, *, graceful: bool = True) -> Generator[None]:
    """A component is away while the block runs, and ready again after it. Otherwise as `stop`."""
    stop(component, number, graceful=graceful)
    try:
        yield
    finally:
        start(component, number)


def lose(number: int, *, to: int = 0, sent: int = 0) -> None:
    """Lose a share, in percent, of the packets that go `to` a node, and of those `sent` by it and its pods.

    Nobody is told: to both sides it looks like silence, other than with `stop_node`. It stays until the next call,
    and 0 and 0 end it. Packets between pods of the node are not lost. Raises as `stop_node`.
    """
    for share in (to, sent):
        if not 0 <= share <= 100:
            raise DevclusterError(f"the share of packets to lose is 0 to 100 percent, not {share}")
    with _alone(Progress()):
        found = _running()
        each = _node(found, number)
        network.lose(found.machines[each.name], each, to)
        network.lose(found.control_plane, each, sent)


def stop_node(number: int) -> None:
    """Pull a node's cable (1, 2, …): its pods run on, out of reach, and after Kubernetes' own time it is NotReady.

    Raises NotRunning without a cluster, DevclusterError for a node that is none.
    """
    with _alone(Progress()):
        found = _running()
        network.set_node_link(found.control_plane, _node(found, number), up=False)


def crash_node(number: int) -> None:
    """Kill every process of a node at once, as a power cut does: what it had in memory is lost, its disks stay.

    Raises as `stop_node`.
    """
    with _alone(Progress()):
        found = _running()
        found.machines[_node(found, number).name].end()


def start_node(number: int) -> None:
    """Have a node as it should be: its cable plugged in, no packets lost, and booted if it has crashed.

    Raises as `stop_node`, and NotReady with the way to a log.
    """
    with _alone(Progress()):
        found = _running()
        each = _node(found, number)
        if found.machines[each.name].alive():
            network.set_node_link(found.control_plane, each, up=True)
            network.lose(found.machines[each.name], each, 0)
        network.lose(found.control_plane, each, 0)
        creation.repair(found)


def execute(number: int, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
    """Run a command in a container of a node that nobody else may be able to reach, and return its output.

    Raises as `stop_node`, and CommandFailed with the command's words.
    """
    return containers.execute(_node(_running(), number), namespace, pod, container, command)
