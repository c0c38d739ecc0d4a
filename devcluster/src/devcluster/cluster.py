"""Operations on the cluster: up, down, status, and fault injection.

A machine-wide lock serialises changes across all checkouts and processes.
"""

import os
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster import apt, architecture, binaries, containers, controlplane, layout, lock, metrics, network
from devcluster import create as creation
from devcluster import remove as removal
from devcluster import state as states
from devcluster.errors import DevclusterError, NotRunning, Unsupported
from devcluster.layout import NodeLayout
from devcluster.machine import Machine
from devcluster.progress import Progress
from devcluster.state import State
from devcluster.store import cluster_store

WITHOUT_CLUSTER = """\
What still works here:
  - unit tests, which need nothing
  - integration tests: `devcluster build` makes etcd and kube-apiserver, which run alone, without root
  - demo and end-to-end tests on a cluster that you have (kind, a cloud): set CLUSTER=current"""


@dataclass(frozen=True)
class ClusterStatus:
    """State of the cluster on this machine.

    `running` is True if the control plane runs. `ended` names the components that do not run, such as
    `control-plane/kube-scheduler`, or machines such as `steersman-2`. `same_version` is True if `up` would keep the
    cluster. `losing` maps the name of a node to its packet loss in percent, inbound and outbound.
    """

    running: bool
    same_version: bool
    kubeconfig: Path
    binaries: Path | None
    logs: Path
    processes: dict[str, int]
    ended: list[str]
    disconnected: list[str]
    packet_loss: dict[str, tuple[int, int]]


def require_supported_host() -> str:
    """Return Go's name of the host architecture, or raise Unsupported."""
    if sys.platform != "linux":
        raise Unsupported(f"The cluster needs Linux: it is made of namespaces.\n{WITHOUT_CLUSTER}")
    if os.geteuid() != 0:
        raise Unsupported(f"The cluster needs root, for namespaces, mounts and containers.\n{WITHOUT_CLUSTER}")
    if architecture.NATIVE not in architecture.MACHINES:
        raise Unsupported(f"The cluster has not been tried on {architecture.NATIVE}.\n{WITHOUT_CLUSTER}")
    return architecture.NATIVE


def kubeconfig_path() -> Path:
    """Return the path of the administrator's kubeconfig; the file may not exist."""
    return layout.KUBECONFIG


def api_server_address() -> str | None:
    """Return the API server's address for `NO_PROXY`, or None without a cluster."""
    state = State.load()
    return None if state is None else str(state.link[2])


@contextmanager
def _cluster_lock(progress: Progress) -> Generator[None]:
    def notify_waiting() -> None:
        progress.note("Another process changes the cluster; waiting for it.")

    with lock.exclusive(layout.LOCK, notify_waiting):
        yield


def up(progress: Progress | None = None, nodes: int | None = None) -> ClusterStatus:
    """Create the cluster, repair it, or replace one of another version.

    `nodes` is how many it is to have, 1 to 3; by default as many as it has, or two. A node that is removed never
    comes back; a new one has the images of the first. Raises Unsupported where none can run, NotReady or
    CommandFailed with the way to a log, DevclusterError for a number that cannot be.
    """
    progress = progress or Progress()
    host_architecture = require_supported_host()
    if nodes is not None and not 1 <= nodes <= len(layout.NODES):
        raise DevclusterError(f"a cluster has 1 to {len(layout.NODES)} nodes, not {nodes}")
    with ThreadPoolExecutor() as pool:
        installed = pool.submit(apt.ensure, progress)
        built = binaries.ensure(progress)
        installed.result()
    expected_version = states.version()
    with _cluster_lock(progress):
        state = State.load()
        if (
            state is not None
            and state.repairable()
            and (state.version, state.ip_family) == (expected_version, layout.IP_FAMILY)
        ):
            state.binaries = built  # those of the checkout that made it may be gone
            state.save()
            _repair_and_resize(state, nodes or len(state.nodes), progress)
            cluster_store.attach(state)
            return _cluster_status(state)
        if removal.cluster_exists():
            with progress.step(f"Remove the cluster that is there: {_replacement_reason(state, expected_version)}"):
                removal.remove()
        new_state = State(
            expected_version, network.find_free_link(), built, list(layout.NODES[: nodes or layout.DEFAULT_NODES])
        )
        creation.create(new_state, host_architecture, progress)
        cluster_store.attach(new_state)
        return _cluster_status(new_state)


def _repair_and_resize(state: State, nodes: int, progress: Progress) -> None:
    restarted = creation.repair(state)
    if restarted:
        progress.note(f"Had ended and was started again: {', '.join(restarted)}")
    if nodes != len(state.nodes):
        with progress.step(f"Have {nodes} instead of {len(state.nodes)} nodes"):
            creation.resize(state, nodes)


def _replacement_reason(state: State | None, expected_version: str) -> str:
    if state is None or not state.complete:
        return "it was never finished"
    if not state.repairable():
        return "the machine was started anew"
    if state.ip_family != layout.IP_FAMILY:
        return f"it has addresses of IPv{state.ip_family}, and DEVCLUSTER_IP={layout.IP_FAMILY}"
    return f"another version of devcluster made it ({state.version}, this is {expected_version})"


def down(progress: Progress | None = None) -> bool:
    """Remove the cluster; return True if there was one.

    Binaries and images stay in the cache. Raises Unsupported, or NotReady if something does not end.
    """
    progress = progress or Progress()
    require_supported_host()
    with _cluster_lock(progress):
        if not removal.cluster_exists():
            return False
        with progress.step("Remove the cluster"):
            removal.remove()
        return True


def ensure_metrics(progress: Progress | None = None) -> None:
    """Install metrics-server in the running cluster, for `kubectl top`.

    Raises NotRunning without a cluster, Unsupported without Go, CommandFailed with the compiler's output.
    """
    metrics.ensure(_require_running().binaries, require_supported_host(), progress or Progress())


def status() -> ClusterStatus:
    """Return the state of the cluster."""
    state = State.load()
    if state is None:
        return ClusterStatus(False, False, layout.KUBECONFIG, None, layout.LOGS, {}, [], [], {})
    return _cluster_status(state)


def _cluster_status(state: State) -> ClusterStatus:
    running = state.alive()
    processes: dict[str, int] = {}
    ended: list[str] = []
    for machine in state.machines.values():
        if state.complete and not machine.alive():
            ended.append(machine.name)
        for name, process in machine.components.items():
            if machine.is_running(name):
                processes[f"{machine.name}/{name}"] = process.pid
            elif machine.alive():
                ended.append(f"{machine.name}/{name}")
    alive = [each for each in state.nodes if running and state.machines[each.name].alive()]
    disconnected = [each.name for each in alive if not network.node_link_is_up(state.control_plane, each)]
    lossy = {each.name: _packet_loss(state, each) for each in alive}
    return ClusterStatus(
        running,
        state.version == states.version(),
        layout.KUBECONFIG,
        state.binaries,
        layout.LOGS,
        processes,
        ended,
        disconnected,
        {name: losses for name, losses in lossy.items() if any(losses)},
    )


def _packet_loss(state: State, node: NodeLayout) -> tuple[int, int]:
    return network.packet_loss(state.machines[node.name], node), network.packet_loss(state.control_plane, node)


def _require_running() -> State:
    state = State.load()
    if state is None or not state.alive():
        raise NotRunning("there is no running cluster; make one with: devcluster up")
    if state.ip_family != layout.IP_FAMILY:
        raise DevclusterError(f"its addresses are of IPv{state.ip_family}: set DEVCLUSTER_IP={state.ip_family}")
    return state


def _node(state: State, number: int) -> NodeLayout:
    for node in state.nodes:
        if node.number == number:
            return node
    raise DevclusterError(f"there is no node {number}; there are {[each.number for each in state.nodes]}")


def _machine(state: State, component: str, number: int | None) -> Machine:
    machine = state.control_plane if number is None else state.machines[_node(state, number).name]
    if component not in machine.components:
        raise DevclusterError(f"{machine.name} has no {component}; it has {', '.join(machine.components)}")
    return machine


def stop(component: str, number: int | None = None, *, graceful: bool = True) -> None:
    """Stop a component until `start` or `up`.

    `component` is one of the control plane's or, on the node `number` (1, 2, …), containerd, kubelet or kube-proxy.
    `graceful=False` kills it, as a crash does. Pods keep running.
    Raises NotRunning without a cluster, DevclusterError for a name that is none.
    """
    with _cluster_lock(Progress()):
        machine = _machine(_require_running(), component, number)
        machine.components[component].terminate(grace=10 if graceful else 0)


def start(component: str, number: int | None = None) -> None:
    """Start a stopped component and wait until it is ready. Raises as `stop`, and NotReady."""
    with _cluster_lock(Progress()):
        state = _require_running()
        machine = _machine(state, component, number)
        if number is None:
            controlplane.start(machine, (component,), state.binaries)
            state.save()
            controlplane.wait_until_ready(machine, state.link)
        else:
            creation.start_node(state, _node(state, number))


def restart(component: str, number: int | None = None, *, graceful: bool = True) -> None:
    """Restart a component and wait until it is ready. Otherwise as `stop`."""
    with component_stopped(component, number, graceful=graceful):
        pass


@contextmanager
def component_stopped(component: str, number: int | None = None, *, graceful: bool = True) -> Generator[None]:
    """Stop a component during the block. Otherwise as `stop`."""
    stop(component, number, graceful=graceful)
    try:
        yield
    finally:
        start(component, number)


def set_packet_loss(number: int, *, ingress: int = 0, egress: int = 0) -> None:
    """Drop packets to and from a node, in percent.

    Neither side gets an error, unlike with `disconnect_node`. The loss lasts until the next call;
    0 and 0 end it. Packets between pods of the node are not lost. Raises as `stop_node`.
    """
    for share in (ingress, egress):
        if not 0 <= share <= 100:
            raise DevclusterError(f"the share of packets to lose is 0 to 100 percent, not {share}")
    with _cluster_lock(Progress()):
        state = _require_running()
        node = _node(state, number)
        network.set_packet_loss(state.machines[node.name], node, ingress)
        network.set_packet_loss(state.control_plane, node, egress)


def disconnect_node(number: int) -> None:
    """Disconnect a node; it becomes NotReady after Kubernetes' grace period.

    Raises NotRunning without a cluster, DevclusterError for a node that is none.
    """
    with _cluster_lock(Progress()):
        state = _require_running()
        network.set_node_link(state.control_plane, _node(state, number), up=False)


def crash_node(number: int) -> None:
    """Kill all processes of a node at once, like a power failure.

    Raises as `stop_node`.
    """
    with _cluster_lock(Progress()):
        state = _require_running()
        state.machines[_node(state, number).name].kill()


def restore_node(number: int) -> None:
    """Reconnect a node, end its packet loss, and boot it.

    Raises as `stop_node`, and NotReady with the way to a log.
    """
    with _cluster_lock(Progress()):
        state = _require_running()
        node = _node(state, number)
        if state.machines[node.name].alive():
            network.set_node_link(state.control_plane, node, up=True)
            network.set_packet_loss(state.machines[node.name], node, 0)
        network.set_packet_loss(state.control_plane, node, 0)
        creation.repair(state)


def execute(number: int, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
    """Run a command in a container of an unreachable node.

    Raises as `stop_node`, and CommandFailed with the command's output.
    """
    return containers.execute(_node(_require_running(), number), namespace, pod, container, command)
