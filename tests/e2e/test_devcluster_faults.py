"""Faults of the devcluster have their documented effect, and data survive them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from devcluster import cluster, layout, oci
from devcluster.errors import CommandFailed
from devcluster.machine import Machine
from devcluster.process import Process, run
from devcluster.progress import Progress
from devcluster.state import State
from devcluster.target import Target, wait_until
from framework_support.cluster_fixtures import ours, own_namespace, toolbox

__all__ = ["ours"]

pytestmark = [pytest.mark.disruptive, pytest.mark.addresses]

FIRST, SECOND, THIRD = (node.name for node in layout.NODES)


def server_pod(name: str, node: str) -> str:
    """Return the manifest of a server with a limited volume."""
    return f"""
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec: {{accessModes: [ReadWriteOnce], storageClassName: limited, resources: {{requests: {{storage: 300Mi}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  terminationGracePeriodSeconds: 1
  securityContext: {{runAsUser: 10001, runAsGroup: 10001, runAsNonRoot: true}}
  tolerations: [{{key: node.kubernetes.io/unreachable, operator: Exists}}]
  containers:
  - name: box
    image: {oci.TOOLBOX}
    args: [serve, ":8080"]
    readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: {name}}}}}]
"""


@pytest.fixture(scope="module")
def boxes(ours: Target) -> Iterator[str]:
    """Create the servers `one` and `two` on the first and second node."""
    with own_namespace(ours, "e2e-devcluster-faults") as name:
        ours.apply(server_pod("one", FIRST) + "---" + server_pod("two", SECOND), name)
        wait_until_ready(ours, name, "pod/one", "pod/two")
        yield name


@pytest.fixture
def healed() -> Iterator[None]:
    """Repair the second node after the test, and restart its processes."""
    yield
    cluster.restore_node(2)
    cluster.up(Progress())


def wait_until_ready(target: Target, namespace: str, *pods: str) -> None:
    target.kubectl("wait", *pods, f"--namespace={namespace}", "--for=condition=Ready", "--timeout=90s", seconds=100)


def kubectl_get(target: Target, *arguments: str) -> dict[str, Any]:
    found = target.get(*arguments)
    assert found is not None
    return found


def pod_address(target: Target, namespace: str, pod: str) -> str:
    return f"{layout.url_host(kubectl_get(target, 'pod', pod, f'--namespace={namespace}')['status']['podIP'])}:8080"


def is_reachable(namespace: str, number: int, pod: str, target: str) -> bool:
    """Return True if a pod reaches an address.

    The command runs on the node of the pod, because the API server may be unable to reach it.
    """
    try:
        cluster.execute(number, namespace, pod, "box", ["toolbox", "connect", target])
    except CommandFailed as error:
        assert "timeout" in str(error)  # no router reports the loss
        return False
    return True


@pytest.mark.parametrize(("to", "sent"), [(100, 0), (0, 100), (100, 100)], ids=["to", "sent", "both"])
def test_packet_loss_isolates_node_per_direction(ours: Target, boxes: str, healed: None, to: int, sent: int) -> None:
    one, two = pod_address(ours, boxes, "one"), pod_address(ours, boxes, "two")
    assert is_reachable(boxes, 1, "one", two)
    assert is_reachable(boxes, 2, "two", one)
    cluster.set_packet_loss(2, ingress=to, egress=sent)
    assert cluster.status().packet_loss == {SECOND: (to, sent)}
    assert not is_reachable(boxes, 1, "one", two)  # a connection needs both directions
    assert not is_reachable(boxes, 2, "two", one)
    assert is_reachable(boxes, 2, "two", two)
    cluster.restore_node(2)
    assert cluster.status().packet_loss == {}
    assert is_reachable(boxes, 1, "one", two)


def test_partial_packet_loss_keeps_connections(ours: Target, boxes: str, healed: None) -> None:
    two = pod_address(ours, boxes, "two")
    cluster.set_packet_loss(2, ingress=20, egress=20)
    state = State.load()
    assert state is not None

    def lost() -> bool:
        with contextlib.suppress(AssertionError):
            is_reachable(boxes, 1, "one", two)
        return dropped_packet_count(state.machines[SECOND]) and dropped_packet_count(state.control_plane)

    wait_until("packets of both directions are lost", lost, seconds=60)
    wait_until("some get through", lambda: is_reachable(boxes, 1, "one", two), seconds=60)


def dropped_packet_count(machine: Machine) -> bool:
    rules = run(machine.in_network([layout.IPTABLES, "-w", "-t", "raw", "-L", f"loss-{SECOND}", "-v", "-x", "-n"]))
    return any(int(line.split()[0]) > 0 for line in rules.splitlines() if "DROP" in line)


def test_isolated_node_becomes_not_ready_and_recovers(ours: Target, boxes: str, healed: None) -> None:
    cluster.set_packet_loss(2, ingress=100, egress=100)
    ours.kubectl("wait", f"node/{SECOND}", "--for=condition=Ready=Unknown", "--timeout=120s", seconds=130)
    assert is_reachable(boxes, 2, "two", pod_address(ours, boxes, "two"))
    cluster.restore_node(2)
    ours.kubectl("wait", f"node/{SECOND}", "--for=condition=Ready=True", "--timeout=60s", seconds=70)
    wait_until_ready(ours, boxes, "pod/two")


def test_crashed_node_boots_with_its_volumes(ours: Target, boxes: str, healed: None) -> None:
    toolbox(ours, boxes, "two", "write", "/data/note", "kept")
    before = kubectl_get(ours, "pod", "two", f"--namespace={boxes}")
    cluster.crash_node(2)
    assert SECOND in cluster.status().ended
    with pytest.raises(CommandFailed):
        toolbox(ours, boxes, "two", "read", "/data/note")
    cluster.restore_node(2)

    def kept() -> bool:
        read = ours.try_kubectl("exec", f"--namespace={boxes}", "two", "--", "toolbox", "read", "/data/note")
        return read.stdout.strip() == "kept"

    wait_until("its pod runs again and has its file", kept, seconds=60)
    after = kubectl_get(ours, "pod", "two", f"--namespace={boxes}")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    restarts = [each["status"]["containerStatuses"][0]["restartCount"] for each in (before, after)]
    assert restarts[1] == restarts[0] + 1
    assert is_reachable(boxes, 1, "one", pod_address(ours, boxes, "two")), "who knew the node finds it where it was"


def test_pods_keep_running_while_api_server_is_down(ours: Target, boxes: str, healed: None) -> None:
    one, two = pod_address(ours, boxes, "one"), pod_address(ours, boxes, "two")
    began = time.monotonic()
    with cluster.component_stopped("kube-apiserver", graceful=False):
        assert cluster.status().ended == ["control-plane/kube-apiserver"]
        refused = ours.try_kubectl("get", "nodes")
        assert "refused" in refused.stderr
        assert is_reachable(boxes, 1, "one", two)
        assert is_reachable(boxes, 2, "two", one)
    assert time.monotonic() - began < 60
    assert len(kubectl_get(ours, "nodes")["items"]) >= 2


def started_processes() -> dict[str, Process]:
    """Return the processes of the devcluster by name.

    The name of a machine stands for its init process.
    """
    state = State.load()
    assert state is not None
    found = {f"{name}/{each}": p for name, m in state.machines.items() for each, p in m.components.items()}
    return found | {name: machine.init for name, machine in state.machines.items()}


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"control-plane/{name}"
            for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
        ),
        "control-plane/volumes",
        *(f"{SECOND}/{name}" for name in ("containerd", "kubelet", "kube-proxy")),
        "control-plane",
        SECOND,
    ],
)
def test_up_repairs_killed_process(ours: Target, boxes: str, name: str) -> None:
    toolbox(ours, boxes, "one", "write", "/data/note", name)
    before = started_processes()
    before[name].kill()
    before[name].wait(10)
    assert name in cluster.status().ended or name == "control-plane"
    status = cluster.up(Progress())
    assert status.running
    assert not status.ended
    killed = {each for each in before if each == name or each.startswith(f"{name}/")}
    after = started_processes()
    assert {each for each in before if before[each] != after[each]} == killed
    wait_until("a pod's file is there", lambda: write_note(ours, boxes) == name, seconds=60)

    def reached() -> bool:
        two = kubectl_get(ours, "pod", "two", f"--namespace={boxes}")["status"].get("podIP")
        return two is not None and can_connect(ours, boxes, "one", f"{layout.url_host(two)}:8080")

    wait_until("pods reach each other", reached, seconds=60)


def write_note(target: Target, namespace: str) -> str:
    return target.try_kubectl(
        "exec", f"--namespace={namespace}", "one", "--", "toolbox", "read", "/data/note"
    ).stdout.strip()


def can_connect(target: Target, namespace: str, pod: str, where: str) -> bool:
    command = ("exec", f"--namespace={namespace}", pod, "--", "toolbox", "connect", where)
    return target.try_kubectl(*command).returncode == 0


def test_third_node_gets_all_images_and_can_be_removed(ours: Target, boxes: str) -> None:
    had = len(kubectl_get(ours, "nodes")["items"])
    try:
        cluster.up(Progress(), nodes=3)
        ours.apply(server_pod("three", THIRD), boxes)
        wait_until_ready(ours, boxes, "pod/three")
        three = pod_address(ours, boxes, "three")
        assert can_connect(ours, boxes, "one", three)
        assert can_connect(ours, boxes, "two", three)
        assert can_connect(ours, boxes, "three", pod_address(ours, boxes, "two"))
        cluster.up(Progress(), nodes=2)
        assert ours.get("node", THIRD) is None
        assert cluster.status().running
        with pytest.raises(CommandFailed, match=r"unreachable|no route"):
            toolbox(ours, boxes, "one", "connect", three)
    finally:
        ours.kubectl("delete", "pod/three", "pvc/three", f"--namespace={boxes}", "--ignore-not-found", "--force")
        cluster.up(Progress(), nodes=had)


def test_limited_volume_fills_and_expands_with_pvc(ours: Target, boxes: str) -> None:
    with pytest.raises(CommandFailed, match="no space left on device"):
        toolbox(ours, boxes, "one", "fill", "/data/much", "400")
    with pytest.raises(CommandFailed, match="no space left on device"):
        toolbox(ours, boxes, "one", "fill", "/data/more", "1")
    assert toolbox(ours, boxes, "two", "fill", "/data/more", "1") == ""  # each volume has its own limit
    larger = '{"spec": {"resources": {"requests": {"storage": "500Mi"}}}}'
    ours.kubectl("patch", "pvc/one", f"--namespace={boxes}", "--type=merge", f"--patch={larger}")
    grown = "--for=jsonpath={.status.capacity.storage}=500Mi"
    ours.kubectl("wait", "pvc/one", f"--namespace={boxes}", grown, "--timeout=120s", seconds=130)
    assert toolbox(ours, boxes, "one", "fill", "/data/more", "150") == ""


def test_kubectl_top_lists_nodes_and_pods(ours: Target, boxes: str) -> None:
    cluster.ensure_metrics(Progress())

    def known() -> bool:
        pods = ours.try_kubectl("top", "pods", f"--namespace={boxes}", "--no-headers").stdout
        nodes = ours.try_kubectl("top", "nodes", "--no-headers").stdout
        return {"one", "two"} <= set(pods.split()) and {FIRST, SECOND} <= set(nodes.split())

    wait_until("kubectl top shows both", known, seconds=60)
