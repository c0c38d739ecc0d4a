"""Names, Services, logs, volumes, identities and isolation of the devcluster."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import certificates, cluster, kubeconfig, layout, oci
from devcluster.errors import CommandFailed
from devcluster.process import run
from devcluster.progress import Progress
from devcluster.state import State
from devcluster.target import Target, wait_until
from framework_support.cluster_fixtures import ours, own_namespace, toolbox

__all__ = ["ours"]

pytestmark = [pytest.mark.disruptive, pytest.mark.addresses]

NODES = [node.name for node in layout.NODES[: layout.DEFAULT_NODES]]
PEERS = ("web-0", "web-1")
OUTSIDE = {"4": "203.0.113.1", "6": "2001:db8::1"}[layout.IP_FAMILY]  # of documentation

# One pod without root on each of two nodes, each with a volume.
WEB = f"""
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  selector: {{app: web}}
  ports: [{{port: 80, targetPort: 8080}}]
---
apiVersion: v1
kind: Service
metadata: {{name: peers}}
spec:
  clusterIP: None
  selector: {{app: web}}
  ports: [{{port: 8080}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: web}}
spec:
  serviceName: peers
  replicas: 2
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {{runAsUser: 10001, runAsGroup: 10001, runAsNonRoot: true}}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: {json.dumps(NODES)}}}]
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: kubernetes.io/hostname
            labelSelector: {{matchLabels: {{app: web}}}}
      containers:
      - name: web
        image: {oci.TOOLBOX}
        args: [serve, ":8080"]
        readinessProbe: {{tcpSocket: {{port: 8080}}, periodSeconds: 1}}
        volumeMounts: [{{name: data, mountPath: /data}}]
  volumeClaimTemplates:
  - metadata: {{name: data}}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {{requests: {{storage: 1Mi}}}}
"""


@pytest.fixture(scope="module")
def web(ours: Target) -> Iterator[str]:
    """Create a web server with two pods, and yield its namespace."""
    with own_namespace(ours, "e2e-devcluster-web") as name:
        ours.apply(WEB, name)
        ours.kubectl("rollout", "status", "statefulset/web", f"--namespace={name}", "--timeout=90s", seconds=100)
        yield name


def read_pod(target: Target, namespace: str, name: str) -> dict[str, Any]:
    found = target.get("pod", name, f"--namespace={namespace}")
    assert found is not None
    return found


def test_two_nodes_are_ready_with_one_pod_each(ours: Target, web: str) -> None:
    assert sorted(read_pod(ours, web, name)["spec"]["nodeName"] for name in PEERS) == NODES


@pytest.mark.parametrize("peer", PEERS)
def test_service_and_pod_names_resolve_on_both_nodes(ours: Target, web: str, peer: str) -> None:
    service = ours.get("service", "web", f"--namespace={web}")
    assert service is not None
    for name in ("web", f"web.{web}", f"web.{web}.svc", f"web.{web}.svc.{layout.CLUSTER_DOMAIN}"):
        assert toolbox(ours, web, peer, "lookup", name) == service["spec"]["clusterIP"]
    addresses = [read_pod(ours, web, name)["status"]["podIP"] for name in PEERS]
    for name, address in zip(PEERS, addresses, strict=True):
        assert toolbox(ours, web, peer, "lookup", f"{name}.peers.{web}.svc") == address
    assert toolbox(ours, web, peer, "lookup", "peers").split() == sorted(addresses)


@pytest.mark.parametrize("peer", PEERS)
def test_names_outside_do_not_exist(ours: Target, web: str, peer: str) -> None:
    with pytest.raises(CommandFailed, match="no such host"):
        toolbox(ours, web, peer, "lookup", "example.com")


@pytest.mark.parametrize("peer", PEERS)
def test_a_service_reaches_pods_on_both_nodes(ours: Target, web: str, peer: str) -> None:
    answers: set[str] = set()

    def both() -> bool:
        answers.add(toolbox(ours, web, peer, "get", "http://web"))
        return answers == set(PEERS)

    wait_until(f"both pods answer {peer}", both, seconds=30)


@pytest.mark.parametrize("peer", PEERS)
def test_the_api_server_is_reached_at_its_service(ours: Target, web: str, peer: str) -> None:
    assert toolbox(ours, web, peer, "connect", "kubernetes.default.svc:443").startswith("connected")


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize(
    "address",
    [
        pytest.param(str(layout.SERVICE_CIDR[77 * 256 + 77]), id="dead-service"),
        pytest.param(str(layout.NODES[0].pod_cidr[250]), id="dead-pod-on-node-1"),
        pytest.param(str(layout.NODES[1].pod_cidr[250]), id="dead-pod-on-node-2"),
        pytest.param("host-side-of-link", id="host-side-of-link"),
        pytest.param("address-of-host", id="address-of-host"),
        pytest.param(OUTSIDE, id="outside"),
    ],
)
def test_unserved_addresses_are_unreachable(ours: Target, web: str, peer: str, address: str) -> None:
    state = State.load()
    assert state is not None
    known = {"host-side-of-link": str(state.link[1]), "address-of-host": host_address()}
    if known.get(address, address) is None or (layout.IP_FAMILY == "6" and address == "host-side-of-link"):
        pytest.skip(f"the host has no IPv{layout.IP_FAMILY} address")
    with pytest.raises(CommandFailed, match=r"refused|unreachable|no route"):
        toolbox(ours, web, peer, "connect", f"{layout.url_host(known.get(address) or address)}:80")


def host_address() -> str | None:
    """Return the address of the default route, or None without one. Sends no packet."""
    with socket.socket({"4": socket.AF_INET, "6": socket.AF_INET6}[layout.IP_FAMILY], socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((OUTSIDE, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def test_no_machine_has_a_default_route(ours: Target) -> None:
    state = State.load()
    assert state is not None
    for machine in state.machines.values():
        for family in ("-4", "-6"):
            assert run(machine.in_network(["ip", family, "route", "show", "default"])) == ""
    setting = {"4": "ipv4/ip_forward", "6": "ipv6/conf/all/forwarding"}[layout.IP_FAMILY]
    assert run(state.control_plane.enter(["cat", f"/proc/sys/net/{setting}"])).strip() == "0"


def test_logs(ours: Target, web: str) -> None:
    for peer in PEERS:
        assert "serving on :8080" in ours.kubectl("logs", f"--namespace={web}", peer)


@pytest.mark.parametrize("peer", PEERS)
def test_port_forward(ours: Target, web: str, peer: str) -> None:
    command = [
        ours.kubectl_path,
        f"--kubeconfig={ours.kubeconfig}",
        "port-forward",
        f"--namespace={web}",
        peer,
        ":8080",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None
            line = forward.stdout.readline()
            port = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert port is not None, line
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://127.0.0.1:{port[1]}", timeout=10) as response:
                assert response.read().decode().strip() == peer
        finally:
            forward.terminate()


def test_volume_survives_pod_and_node_component_restarts(ours: Target, web: str) -> None:
    toolbox(ours, web, "web-0", "write", "/data/note", "kept")
    first = read_pod(ours, web, "web-0")
    ours.kubectl("delete", "pod", "web-0", f"--namespace={web}", "--timeout=60s", seconds=70)
    ours.kubectl("rollout", "status", "statefulset/web", f"--namespace={web}", "--timeout=60s", seconds=70)
    assert read_pod(ours, web, "web-0")["metadata"]["uid"] != first["metadata"]["uid"]
    assert toolbox(ours, web, "web-0", "read", "/data/note") == "kept"

    number = NODES.index(read_pod(ours, web, "web-0")["spec"]["nodeName"]) + 1
    before = read_pod(ours, web, "web-0")["status"]["containerStatuses"][0]["containerID"]
    for component in ("containerd", "kubelet"):
        cluster.restart(component, number, graceful=False)

    def kept() -> bool:
        read = ours.try_kubectl("exec", f"--namespace={web}", "web-0", "--", "toolbox", "read", "/data/note")
        return read.stdout.strip() == "kept"

    wait_until("the new kubelet knows its pods", kept, seconds=60)
    assert read_pod(ours, web, "web-0")["status"]["containerStatuses"][0]["containerID"] == before


def test_deleted_pvc_removes_its_directory(ours: Target, namespace: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "short"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    user = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user"},
        "spec": {
            "securityContext": {"runAsUser": 10001, "runAsNonRoot": True},
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "write",
                    "image": oci.TOOLBOX,
                    "args": ["write", "/data/note", "kept"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
            ],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "short"}}],
        },
    }
    ours.apply(yaml.safe_dump_all([claim, user]), namespace)
    written = "--for=jsonpath={.status.phase}=Succeeded"
    ours.kubectl("wait", "pod/user", f"--namespace={namespace}", written, "--timeout=60s", seconds=70)
    bound = ours.get("pvc", "short", f"--namespace={namespace}")
    assert bound is not None
    volume = ours.get("pv", bound["spec"]["volumeName"])
    assert volume is not None
    directory = Path(volume["spec"]["local"]["path"])
    assert (directory / "note").read_text() == "kept"
    ours.kubectl("delete", "pod/user", "pvc/short", f"--namespace={namespace}", "--timeout=60s", seconds=70)
    wait_until("the directory is gone", lambda: not directory.exists(), seconds=30)


def test_up_repeated_changes_no_processes(ours: Target) -> None:
    before = cluster.status()
    again = cluster.up(Progress())
    assert again.processes == before.processes
    assert not again.ended
    assert not again.disconnected


def test_up_restarts_only_ended_components(ours: Target) -> None:
    before = cluster.status().processes
    state = State.load()
    assert state is not None
    state.control_plane.components["kube-scheduler"].terminate(grace=0)
    assert cluster.status().ended == ["control-plane/kube-scheduler"]
    after = cluster.up(Progress()).processes
    assert {name for name in before if before[name] != after[name]} == {"control-plane/kube-scheduler"}


def test_disconnected_node_recovers_when_reconnected(ours: Target, web: str) -> None:
    here, there = sorted(PEERS, key=lambda name: read_pod(ours, web, name)["spec"]["nodeName"])
    address = f"{layout.url_host(read_pod(ours, web, there)['status']['podIP'])}:8080"
    toolbox(ours, web, here, "connect", address)
    cluster.disconnect_node(2)
    try:
        assert cluster.status().disconnected == ["steersman-2"]
        with pytest.raises(CommandFailed, match=r"timeout|unreachable|no route"):
            toolbox(ours, web, here, "connect", address)
    finally:
        cluster.restore_node(2)
    wait_until("its pod answers again", lambda: can_connect(ours, web, here, address), seconds=30)
    assert cluster.status().disconnected == []


def can_connect(target: Target, namespace: str, peer: str, address: str) -> bool:
    command = ("exec", f"--namespace={namespace}", peer, "--", "toolbox", "connect", address)
    return target.try_kubectl(*command).returncode == 0


@pytest.mark.parametrize("identity", certificates.identities())
def test_component_identity_is_recognised(ours: Target, identity: str) -> None:
    user, group = certificates.identities()[identity]
    state = State.load()
    assert state is not None
    config = layout.KUBECONFIG if identity == "admin" else kubeconfig.component_path(identity)
    whoami = [ours.kubectl_path, f"--kubeconfig={config}", "auth", "whoami", "--output=json"]
    inside = identity not in ("admin", "bootstrap")
    answer = json.loads(run(state.control_plane.in_network(whoami) if inside else whoami))
    assert answer["status"]["userInfo"]["username"] == user
    assert set(answer["status"]["userInfo"]["groups"]) == {"system:authenticated", *([group] if group else [])}


@pytest.mark.parametrize(
    ("identity", "verb", "resource", "allowed"),
    [
        ("admin", "delete", "nodes", True),
        ("kube-scheduler", "create", "pods/binding", True),
        ("kube-scheduler", "get", "secrets", False),
        ("kube-controller-manager", "delete", "nodes", False),
        (f"kube-proxy-{NODES[0]}", "list", "services", True),
        (f"kube-proxy-{NODES[0]}", "get", "secrets", False),
        (f"kubelet-{NODES[0]}", "create", "events", True),
        (f"kubelet-{NODES[0]}", "delete", "pods", True),
        (f"kubelet-{NODES[0]}", "list", "secrets", False),
        ("volumes", "create", "persistentvolumes", True),
        ("volumes", "get", "secrets", False),
    ],
)
def test_identity_has_expected_permissions(
    ours: Target, identity: str, verb: str, resource: str, allowed: bool
) -> None:
    user, group = certificates.identities()[identity]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": [group] if group else [],
            "resourceAttributes": access_cases(verb, resource),
        },
    }
    answer = ours.kubectl("create", "--filename=-", "--output=json", stdin=json.dumps(review))
    assert json.loads(answer)["status"].get("allowed", False) is allowed


def access_cases(verb: str, resource: str) -> dict[str, str]:
    name, _, part = resource.partition("/")
    return {"verb": verb, "resource": name, "subresource": part}


def test_kubelets_and_api_server_reject_anonymous(ours: Target) -> None:
    state = State.load()
    assert state is not None
    config = yaml.safe_load(layout.KUBECONFIG.read_text())
    assert config["clusters"][0]["cluster"]["server"] == kubeconfig.server_url(state.link)
    assert layout.KUBECONFIG.stat().st_mode & 0o077 == 0
    trust = ssl.create_default_context(cafile=str(certificates.CLUSTER_CA.certificate))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    with pytest.raises(urllib.error.HTTPError, match="403"):
        opener.open(f"{kubeconfig.server_url(state.link)}/api/v1/nodes", timeout=10)
    for node in state.nodes:
        address = f"https://{layout.url_host(node.address)}:10250/pods"
        asked = run(state.control_plane.in_network([sys.executable, "-c", ANONYMOUS_REQUEST, address]))
        assert asked.strip() == "401"


# This program runs in the network of the control plane, which can reach the kubelets.
ANONYMOUS_REQUEST = """
import ssl, sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=10, context=ssl._create_unverified_context())
except urllib.error.HTTPError as error:
    print(error.code)
"""
