"""Creation, repair and resizing of a cluster.

Independent steps run in parallel.
"""

import shutil
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devcluster import (
    addons,
    certificates,
    cgroups,
    containers,
    controlplane,
    kubeconfig,
    layout,
    loop_devices,
    network,
    node,
    oci,
)
from devcluster.errors import CommandFailed, NotReady
from devcluster.kubectl import kubectl
from devcluster.layout import NodeLayout
from devcluster.machine import Machine
from devcluster.progress import Progress
from devcluster.state import State

_save_lock = threading.Lock()


def create(state: State, architecture: str, progress: Progress) -> None:
    """Create a cluster. `architecture` is Go's name, such as `amd64`.

    Raises NotReady or CommandFailed, each with the way to a log.
    """
    layout.LOGS.mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        with progress.step("Start the control plane"):
            archives = pool.submit(oci.ensure, state.binaries, architecture)
            certificates.issue_all(state.link)
            kubeconfig.write_all(state.link)
            _boot_control_plane(state)
            controlplane.start(state.control_plane, controlplane.STORAGE, state.binaries)

            def prepare(node_layout: NodeLayout) -> None:
                machine = _boot_node(state, node_layout)
                containers.start(machine, node_layout)
                node.load_images(machine, node_layout, archives.result())

            prepared = [pool.submit(prepare, each) for each in state.nodes]
            controlplane.wait_until_ready(state.control_plane, state.link)
            _apply_addons(state)
            controlplane.start(state.control_plane, controlplane.CONTROLLERS, state.binaries)
        with progress.step("Start the nodes"):
            for each in prepared:
                each.result()
            _route_pods(state)
            for each in state.nodes:
                node.start(state.machines[each.name], each, state.binaries)
            state.save()
            wait_until_ready(state)
    state.complete = True
    state.save()


def _boot_machine(state: State, name: str, directory: Path) -> Machine:
    machine = Machine.boot(name, directory, state.binaries / "toolbox")
    with _save_lock:
        state.machines[name] = machine
        state.save()
    return machine


def _boot_control_plane(state: State) -> None:
    machine = _boot_machine(state, layout.CONTROL_PLANE, layout.STATE / layout.CONTROL_PLANE)
    network.connect_control_plane(machine, state.link)


def _boot_node(state: State, node_layout: NodeLayout) -> Machine:
    node.prepare(node_layout)
    machine = _boot_machine(state, node_layout.name, node_layout.directory)
    network.configure_node(machine)
    network.attach_node(state.control_plane, machine, node_layout)
    return machine


def _route_pods(state: State, removed: Sequence[NodeLayout] = ()) -> None:
    for machine in state.machines.values():
        network.route_pods(machine, state.nodes, removed)


def repair(state: State) -> list[str]:
    """Start stopped machines and components, and return their names."""
    ended = [name for name, machine in state.machines.items() if not machine.alive()]
    ended += [
        f"{name}/{component}"
        for name, machine in state.machines.items()
        for component in machine.components
        if machine.alive() and not machine.is_running(component)
    ]
    if not ended:
        return []
    if layout.CONTROL_PLANE in ended:
        network.remove_link()
        _boot_control_plane(state)
    controlplane.start(state.control_plane, controlplane.STORAGE, state.binaries)
    for each in state.nodes:
        if each.name in ended:
            network.detach_machine(state.control_plane, each.name)
            _boot_node(state, each)
        network.attach_node(state.control_plane, state.machines[each.name], each)
    _route_pods(state)
    controlplane.wait_until_ready(state.control_plane, state.link)
    controlplane.start(state.control_plane, controlplane.CONTROLLERS, state.binaries)
    for each in state.nodes:
        start_node(state, each)
    state.save()
    wait_until_ready(state)
    return ended


def start_node(state: State, node_layout: NodeLayout) -> None:
    """Start the stopped components of a node and wait until they respond."""
    machine = state.machines[node_layout.name]
    containers.start(machine, node_layout)
    state.save()
    containers.wait_until_ready(machine, node_layout)
    node.start(machine, node_layout, state.binaries)
    state.save()
    node.wait_until_ready(machine, node_layout, state.binaries)


def resize(state: State, count: int) -> None:
    """Add or remove nodes until there are `count`, from 1 to `layout.NODES`."""
    for each in reversed(state.nodes[count:]):
        _remove_node(state, each)
    for each in layout.NODES[len(state.nodes) : count]:
        _add_node(state, each)


def _add_node(state: State, node_layout: NodeLayout) -> None:
    machine = _boot_node(state, node_layout)
    containers.start(machine, node_layout)
    state.nodes.append(node_layout)
    state.save()
    _route_pods(state)
    _apply_addons(state)
    containers.wait_until_ready(machine, node_layout)
    containers.copy_images(state.nodes[0], node_layout, layout.STATE / "images.tar")
    start_node(state, node_layout)
    wait_until_ready(state)


def _remove_node(state: State, node_layout: NodeLayout) -> None:
    state.machines.pop(node_layout.name).kill()
    state.nodes.remove(node_layout)
    state.save()
    network.detach_machine(state.control_plane, node_layout.name)
    _route_pods(state, removed=[node_layout])
    kubectl(state.binaries, ["delete", "node", node_layout.name, "--ignore-not-found"])
    _apply_addons(state)
    cgroups.remove(node_layout.name)
    loop_devices.detach(node_layout.directory)
    for directory in (node_layout.directory, node_layout.run_directory):
        shutil.rmtree(directory)


def _apply_addons(state: State) -> None:
    """Apply the initial objects; retry until the kube-system namespace exists."""
    deadline = time.monotonic() + 20
    manifests = addons.manifests(state.nodes)
    while True:
        try:
            kubectl(
                state.binaries,
                ["apply", "--server-side", "--validate=false", "--filename=-"],
                kubeconfig=kubeconfig.component_path("bootstrap"),
                stdin=manifests,
            )
        except CommandFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def wait_until_ready(state: State, seconds: int = 90) -> None:
    """Wait until all nodes are Ready and DNS responds. Raises NotReady."""
    waits = (
        ["wait", "node", "--all", "--for=condition=Ready", f"--timeout={seconds}s"],
        ["rollout", "status", "deployment/coredns", "--namespace=kube-system", f"--timeout={seconds}s"],
    )
    for wait in waits:
        try:
            kubectl(state.binaries, wait, seconds=seconds + 10)
        except CommandFailed as error:
            for machine in state.machines.values():
                for name in machine.components:
                    if not machine.is_running(name):
                        raise NotReady(f"{name} of {machine.name} ended; see {machine.log(name)}") from error
            logs = ", ".join(str(state.machines[each.name].log("kubelet")) for each in state.nodes)
            raise NotReady(f"{error}; see {logs}") from error
