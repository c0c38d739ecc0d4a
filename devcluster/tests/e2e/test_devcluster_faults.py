"""What the devcluster does to itself on purpose is as bad as said, and it comes back from all of it with its data."""

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
from framework_support.devcluster_itself import ours, own_namespace, toolbox

__all__ = ["ours"]

pytestmark = [pytest.mark.disruptive, pytest.mark.addresses]

FIRST, SECOND, THIRD = (node.name for node in layout.NODES)


def box(name: str, node: str) -> str:
    """A server on a node, with a volume of limited size."""
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
    """The namespace of two servers, `one` on the first node and `two` on the second."""
    with own_namespace(ours, "e2e-devcluster-faults") as name:
        ours.apply(box("one", FIRST) + "---" + box("two", SECOND), name)
        ready(ours, name, "pod/one", "pod/two")
        yield name


@pytest.fixture
def healed() -> Iterator[None]:
    """The second node is well again after the test, and what has ended runs."""
    yield
    cluster.start_node(2)
    cluster.up(Progress())


def ready(target: Target, namespace: str, *pods: str) -> None:
    target.kubectl("wait", *pods, f"--namespace={namespace}", "--for=condition=Ready", "--timeout=90s", seconds=100)


def get(target: Target, *arguments: str) -> dict[str, Any]:
    found = target.get(*arguments)
    assert found is not None
    return found


def address(target: Target, namespace: str, pod: str) -> str:
    return f"{layout.in_url(get(target, 'pod', pod, f'--namespace={namespace}')['status']['podIP'])}:8080"


def reaches(namespace: str, number: int, pod: str, target: str) -> bool:
    """Whether a pod reaches an address, asked on its node itself: the API server may be unable to."""
    try:
        cluster.execute(number, namespace, pod, "box", ["toolbox", "connect", target])
    except CommandFailed as error:
        assert "timeout" in str(error)  # nobody says that there is no way
        return False
    return True


@pytest.mark.parametrize(("to", "sent"), [(100, 0), (0, 100), (100, 100)], ids=["to", "sent", "both"])
def test_a_node_is_cut_off_in_one_direction_or_both(
    ours: Target, boxes: str, healed: None, to: int, sent: int
) -> None:
    one, two = address(ours, boxes, "one"), address(ours, boxes, "two")
    assert reaches(boxes, 1, "one", two)
    assert reaches(boxes, 2, "two", one)
    cluster.lose(2, to=to, sent=sent)
    assert cluster.status().losing == {SECOND: (to, sent)}
    assert not reaches(boxes, 1, "one", two)  # a connection needs both ways
    assert not reaches(boxes, 2, "two", one)
    assert reaches(boxes, 2, "two", two)
    cluster.start_node(2)
    assert cluster.status().losing == {}
    assert reaches(boxes, 1, "one", two)


def test_some_packets_are_lost_and_connections_bear_it(ours: Target, boxes: str, healed: None) -> None:
    two = address(ours, boxes, "two")
    cluster.lose(2, to=20, sent=20)
    state = State.load()
    assert state is not None

    def lost() -> bool:
        with contextlib.suppress(AssertionError):
            reaches(boxes, 1, "one", two)
        return dropped(state.machines[SECOND]) and dropped(state.control_plane)

    wait_until("packets of both directions are lost", lost, seconds=60)
    wait_until("some get through", lambda: reaches(boxes, 1, "one", two), seconds=60)


def dropped(machine: Machine) -> bool:
    rules = run(machine.in_network([layout.IPTABLES, "-w", "-t", "raw", "-L", f"loss-{SECOND}", "-v", "-x", "-n"]))
    return any(int(line.split()[0]) > 0 for line in rules.splitlines() if "DROP" in line)


def test_a_node_in_silence_is_not_ready_and_comes_back(ours: Target, boxes: str, healed: None) -> None:
    cluster.lose(2, to=100, sent=100)
    ours.kubectl("wait", f"node/{SECOND}", "--for=condition=Ready=Unknown", "--timeout=120s", seconds=130)
    assert reaches(boxes, 2, "two", address(ours, boxes, "two"))
    cluster.start_node(2)
    ours.kubectl("wait", f"node/{SECOND}", "--for=condition=Ready=True", "--timeout=60s", seconds=70)
    ready(ours, boxes, "pod/two")


def test_a_node_that_crashes_boots_again_with_its_volumes(ours: Target, boxes: str, healed: None) -> None:
    toolbox(ours, boxes, "two", "write", "/data/note", "kept")
    before = get(ours, "pod", "two", f"--namespace={boxes}")
    cluster.crash_node(2)
    assert SECOND in cluster.status().ended
    with pytest.raises(CommandFailed):
        toolbox(ours, boxes, "two", "read", "/data/note")
    cluster.start_node(2)

    def kept() -> bool:
        read = ours.try_kubectl("exec", f"--namespace={boxes}", "two", "--", "toolbox", "read", "/data/note")
        return read.stdout.strip() == "kept"

    wait_until("its pod runs again and has its file", kept, seconds=60)
    after = get(ours, "pod", "two", f"--namespace={boxes}")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    restarts = [each["status"]["containerStatuses"][0]["restartCount"] for each in (before, after)]
    assert restarts[1] == restarts[0] + 1
    assert reaches(boxes, 1, "one", address(ours, boxes, "two")), "who knew the node finds it where it was"


def test_pods_run_on_while_the_api_server_is_away(ours: Target, boxes: str, healed: None) -> None:
    one, two = address(ours, boxes, "one"), address(ours, boxes, "two")
    began = time.monotonic()
    with cluster.without("kube-apiserver", graceful=False):
        assert cluster.status().ended == ["control-plane/kube-apiserver"]
        refused = ours.try_kubectl("get", "nodes")
        assert "refused" in refused.stderr
        assert reaches(boxes, 1, "one", two)
        assert reaches(boxes, 2, "two", one)
    assert time.monotonic() - began < 60
    assert len(get(ours, "nodes")["items"]) >= 2


def processes() -> dict[str, Process]:
    """Every process that devcluster has started; a machine's own name is its first process, which holds the rest."""
    state = State.load()
    assert state is not None
    found = {f"{name}/{each}": p for name, m in state.machines.items() for each, p in m.components.items()}
    return found | {name: machine.first for name, machine in state.machines.items()}


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
def test_up_mends_what_was_killed(ours: Target, boxes: str, name: str) -> None:
    toolbox(ours, boxes, "one", "write", "/data/note", name)
    before = processes()
    before[name].kill()
    before[name].wait(10)
    assert name in cluster.status().ended or name == "control-plane"
    status = cluster.up(Progress())
    assert status.running
    assert not status.ended
    killed = {each for each in before if each == name or each.startswith(f"{name}/")}
    after = processes()
    assert {each for each in before if before[each] != after[each]} == killed
    wait_until("a pod's file is there", lambda: note(ours, boxes) == name, seconds=60)

    def reached() -> bool:
        two = get(ours, "pod", "two", f"--namespace={boxes}")["status"].get("podIP")
        return two is not None and connects(ours, boxes, "one", f"{layout.in_url(two)}:8080")

    wait_until("pods reach each other", reached, seconds=60)


def note(target: Target, namespace: str) -> str:
    return target.try_kubectl(
        "exec", f"--namespace={namespace}", "one", "--", "toolbox", "read", "/data/note"
    ).stdout.strip()


def connects(target: Target, namespace: str, pod: str, where: str) -> bool:
    command = ("exec", f"--namespace={namespace}", pod, "--", "toolbox", "connect", where)
    return target.try_kubectl(*command).returncode == 0


def test_a_third_node_comes_with_every_image_and_goes(ours: Target, boxes: str) -> None:
    had = len(get(ours, "nodes")["items"])
    try:
        cluster.up(Progress(), nodes=3)
        ours.apply(box("three", THIRD), boxes)
        ready(ours, boxes, "pod/three")
        three = address(ours, boxes, "three")
        assert connects(ours, boxes, "one", three)
        assert connects(ours, boxes, "two", three)
        assert connects(ours, boxes, "three", address(ours, boxes, "two"))
        cluster.up(Progress(), nodes=2)
        assert ours.get("node", THIRD) is None
        assert cluster.status().running
        with pytest.raises(CommandFailed, match=r"unreachable|no route"):
            toolbox(ours, boxes, "one", "connect", three)
    finally:
        ours.kubectl("delete", "pod/three", "pvc/three", f"--namespace={boxes}", "--ignore-not-found", "--force")
        cluster.up(Progress(), nodes=had)


def test_a_limited_volume_gets_full_and_grows_with_its_claim(ours: Target, boxes: str) -> None:
    with pytest.raises(CommandFailed, match="no space left on device"):
        toolbox(ours, boxes, "one", "fill", "/data/much", "400")
    with pytest.raises(CommandFailed, match="no space left on device"):
        toolbox(ours, boxes, "one", "fill", "/data/more", "1")
    assert toolbox(ours, boxes, "two", "fill", "/data/more", "1") == ""  # each has its own
    larger = '{"spec": {"resources": {"requests": {"storage": "500Mi"}}}}'
    ours.kubectl("patch", "pvc/one", f"--namespace={boxes}", "--type=merge", f"--patch={larger}")
    grown = "--for=jsonpath={.status.capacity.storage}=500Mi"
    ours.kubectl("wait", "pvc/one", f"--namespace={boxes}", grown, "--timeout=120s", seconds=130)
    assert toolbox(ours, boxes, "one", "fill", "/data/more", "150") == ""


def test_kubectl_top_knows_nodes_and_pods(ours: Target, boxes: str) -> None:
    cluster.ensure_metrics(Progress())

    def known() -> bool:
        pods = ours.try_kubectl("top", "pods", f"--namespace={boxes}", "--no-headers").stdout
        nodes = ours.try_kubectl("top", "nodes", "--no-headers").stdout
        return {"one", "two"} <= set(pods.split()) and {FIRST, SECOND} <= set(nodes.split())

    wait_until("kubectl top shows both", known, seconds=60)
