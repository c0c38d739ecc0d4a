"""The making of a cluster: everything that does not wait for something else goes on at the same time."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devcluster import (
    addons,
    certificates,
    containers,
    controlplane,
    kubeconfig,
    layout,
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


def create(binaries: Path, version: str, architecture: str, progress: Progress) -> State:
    """Make a cluster where there is none. `architecture` is Go's name of this machine's, as in `amd64`.

    Raises NotReady or CommandFailed, each with the way to a log.
    """
    state = State(version=version, link=network.free_link(), binaries=binaries)
    layout.LOGS.mkdir(parents=True)
    saving = threading.Lock()

    def boot(name: str, directory: Path) -> Machine:
        machine = Machine.boot(name, directory, binaries / "toolbox")
        with saving:
            state.machines[name] = machine
            state.save()
        return machine

    with ThreadPoolExecutor() as pool:
        with progress.step("Start the control plane"):
            archives = pool.submit(oci.ensure, binaries, architecture)
            certificates.issue_all(state.link)
            kubeconfig.write_all(state.link)
            control_plane = boot(layout.CONTROL_PLANE, layout.STATE / layout.CONTROL_PLANE)
            network.wire_control_plane(control_plane, state.link)
            controlplane.start(control_plane, controlplane.STORAGE, binaries)

            def prepare(each: NodeLayout) -> None:
                node.prepare(each)
                machine = boot(each.name, each.directory)
                network.wire_node(control_plane, machine, each)
                containers.start(machine, each)
                node.load_images(machine, each, archives.result())

            nodes = {each: pool.submit(prepare, each) for each in layout.NODES}
            controlplane.wait_until_ready(control_plane, state.link)
            _apply_addons(binaries)
            controlplane.start(control_plane, controlplane.CONTROLLERS, binaries)
        with progress.step("Start the nodes"):
            for each, prepared in nodes.items():
                prepared.result()
                node.start(state.machines[each.name], each, binaries)
            state.save()
            wait_until_ready(state)
    state.complete = True
    state.save()
    return state


def repair(state: State) -> list[str]:
    """Start those components that have ended on machines that live, and return their names."""
    ended = [
        f"{machine.name}/{name}"
        for machine in state.machines.values()
        for name in machine.components
        if not machine.runs(name)
    ]
    if ended:
        controlplane.start(state.control_plane, controlplane.STORAGE, state.binaries)
        controlplane.wait_until_ready(state.control_plane, state.link)
        controlplane.start(state.control_plane, controlplane.CONTROLLERS, state.binaries)
        for each in layout.NODES:
            machine = state.machines[each.name]
            containers.start(machine, each)
            containers.wait_until_ready(machine, each)
            node.start(machine, each, state.binaries)
            node.wait_until_ready(machine, each, state.binaries)
        state.save()
        wait_until_ready(state)
    return ended


def _apply_addons(binaries: Path) -> None:
    """Apply what every cluster has. The API server says that it is ready a moment before kube-system exists."""
    deadline = time.monotonic() + 20
    manifests = addons.manifests()
    while True:
        try:
            kubectl(
                binaries,
                ["apply", "--server-side", "--validate=false", "--filename=-"],
                kubeconfig=kubeconfig.component("bootstrap"),
                stdin=manifests,
            )
        except CommandFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def wait_until_ready(state: State, seconds: int = 90) -> None:
    """Wait until both nodes are Ready and DNS answers. Raises NotReady, with what to look at."""
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
                    if not machine.runs(name):
                        raise NotReady(f"{name} of {machine.name} ended; see {machine.log(name)}") from error
            logs = ", ".join(str(state.machines[each.name].log("kubelet")) for each in layout.NODES)
            raise NotReady(f"{error}; see {logs}") from error
