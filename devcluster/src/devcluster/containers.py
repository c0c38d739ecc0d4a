"""The container runtime of a node, and its image store."""

import json
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devcluster import layout, oci
from devcluster.errors import CommandFailed, NotReady, NotRunning
from devcluster.layout import NodeLayout
from devcluster.machine import Machine
from devcluster.process import run

CNI_PLUGINS = Path("/usr/lib/cni")


def _configuration(node: NodeLayout) -> str:
    directory = node.directory
    # restrict_oom_score_adj: where we may not lower the score ourselves, runc may not either
    return f"""\
version = 2
root = "{directory}/containerd"
state = "/run/containerd"

[grpc]
  address = "{node.containerd_socket}"

[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "{oci.PAUSE}"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{directory}/cni-configuration"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def _pod_network(node: NodeLayout) -> dict[str, object]:
    """Return the CNI configuration: the ptp plugin without masquerading."""
    address = {
        "type": "host-local",
        "ranges": [[{"subnet": str(node.pod_cidr)}]],
        "routes": [{"dst": layout.DEFAULT_ROUTE}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "steersman",
        "plugins": [
            {"type": "ptp", "ipam": address},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def start(machine: Machine, node: NodeLayout) -> None:
    """Start containerd on a node, unless it runs."""
    network = node.directory / "cni-configuration" / "10-steersman.conflist"
    network.parent.mkdir(parents=True, exist_ok=True)
    network.write_text(json.dumps(_pod_network(node), indent=2))
    configuration = node.directory / "containerd.toml"
    configuration.write_text(_configuration(node))
    machine.start("containerd", ["containerd", "--config", str(configuration)])


def _ctr(node: NodeLayout, *arguments: str, seconds: float = 300.0) -> str:
    command = ["ctr", "--address", str(node.containerd_socket), "--namespace", "k8s.io", *arguments]
    return run(command, seconds=seconds)


def wait_until_ready(machine: Machine, node: NodeLayout, seconds: float = 30.0) -> None:
    """Wait until containerd responds. Raises NotReady, naming the log."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            _ctr(node, "version", seconds=5)
        except CommandFailed as error:
            if not machine.is_running("containerd") or time.monotonic() > deadline:
                raise NotReady(f"containerd of {node.name}: {error}; see {machine.log('containerd')}") from error
            time.sleep(0.1)
        else:
            return


def load_into(node: NodeLayout, archive: Path) -> None:
    """Import an OCI archive into one node. Raises CommandFailed."""
    _ctr(node, "images", "import", str(archive))


def load(archive: Path, nodes: Sequence[NodeLayout]) -> None:
    """Import an OCI archive into `nodes` in parallel.

    Raises NotRunning if there are none, CommandFailed with containerd's words.
    """
    if not nodes:
        raise NotRunning("there is no running cluster to load images into; make one with: devcluster up")
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(load_into, node, archive) for node in nodes]:
            done.result()


def digest(node: NodeLayout, reference: str) -> str | None:
    """Return the digest of an image on a node, or None."""
    lines = (line.split() for line in _ctr(node, "images", "list", f"name=={reference}").splitlines()[1:])
    return next((fields[2] for fields in lines if fields[0] == reference), None)


def tag(node: NodeLayout, reference: str, alias: str) -> None:
    """Add a name to an image of a node. Raises CommandFailed."""
    _ctr(node, "images", "tag", "--force", reference, alias)


def images(node: NodeLayout) -> set[str]:
    """Return the names of the images of a node."""
    return set(_ctr(node, "images", "list", "--quiet").split())


def copy_images(source: NodeLayout, target: NodeLayout, archive: Path) -> None:
    """Copy all images from one node to another through a temporary archive."""
    try:
        _ctr(source, "images", "export", str(archive), *sorted(_without_digests(images(source))))
        load_into(target, archive)
    finally:
        archive.unlink(missing_ok=True)


def _without_digests(references: Iterable[str]) -> set[str]:
    """Drop the digest references that the CRI plugin adds to each image."""
    return {name for name in references if not name.startswith("sha256:") and "@sha256:" not in name}


def execute(node: NodeLayout, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
    """Run a command in a container of an unreachable node.

    Raises CommandFailed with the command's output, or if no such container runs there.
    """
    labels = {"pod.namespace": namespace, "pod.name": pod, "container.name": container}
    filters = ",".join(f'labels."io.kubernetes.{key}"=={value}' for key, value in labels.items())
    matching = set(_ctr(node, "containers", "list", "--quiet", filters).split())
    running = matching & set(_ctr(node, "tasks", "list", "--quiet").split())
    if not running:
        raise CommandFailed(f"{node.name} runs no container {container} of pod {namespace}/{pod}")
    exec_id = f"devcluster-{time.monotonic_ns()}"
    fifo_option = f"--fifo-dir={node.run_directory}"  # seen by both, other than the default place
    return _ctr(node, "tasks", "exec", "--exec-id", exec_id, fifo_option, running.pop(), *command, seconds=60)
