"""The kubelet and kube-proxy of a node."""

import time
from contextlib import suppress
from pathlib import Path

import yaml

from devcluster import certificates, cgroups, containers, kubeconfig, layout
from devcluster.errors import CommandFailed, NotReady
from devcluster.kubectl import kubectl
from devcluster.layout import NodeLayout
from devcluster.machine import Machine


def _kubelet_configuration(node: NodeLayout) -> dict[str, object]:
    server = certificates.kubelet_server(node)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(certificates.CLUSTER_CA.certificate)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(server.certificate),
        "tlsPrivateKeyFile": str(server.key),
        "address": layout.ANY_ADDRESS,
        "clusterDNS": [str(layout.DNS_SERVICE_IP)],
        "clusterDomain": layout.CLUSTER_DOMAIN,
        # pods with dnsPolicy Default get no name server, since the host's are unreachable
        "resolvConf": str(node.directory / "resolv.conf"),
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.CGROUP}/{node.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        # without a registry a garbage-collected image could not be pulled again
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # absolute thresholds: the default shares would evict all pods on a machine with a full disk
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "500Mi",
            "imagefs.available": "500Mi",
        },
        "podLogsDir": "/var/log/pods",
        "syncFrequency": "10s",  # interval in which a volume follows its resized PVC
        "registerNode": True,
    }


def _proxy_configuration(node: NodeLayout) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": layout.ANY_ADDRESS,
        "hostnameOverride": node.name,
        "clusterCIDR": str(layout.POD_CIDR),
        "clientConnection": {"kubeconfig": str(kubeconfig.component_path(f"kube-proxy-{node.name}"))},
        # the size of the connection table is the host's
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
    }


def prepare(node: NodeLayout) -> None:
    """Create configuration, directories and cgroups of a node."""
    node.directory.mkdir(parents=True, exist_ok=True)
    (node.directory / "volumes").mkdir(exist_ok=True)
    (node.directory / "resolv.conf").write_text("")
    for name, content in (
        ("kubelet.yaml", _kubelet_configuration(node)),
        ("kube-proxy.yaml", _proxy_configuration(node)),
    ):
        (node.directory / name).write_text(yaml.safe_dump(content, sort_keys=False))
    cgroups.create(node.name)


def start(machine: Machine, node: NodeLayout, binaries: Path) -> None:
    """Start the kubelet and kube-proxy of a node, unless they run."""
    machine.start(
        "kubelet",
        [
            str(binaries / "kubelet"),
            f"--config={node.directory / 'kubelet.yaml'}",
            f"--kubeconfig={kubeconfig.component_path(f'kubelet-{node.name}')}",
            f"--root-dir={node.directory / 'kubelet'}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
        ],
    )
    machine.start("kube-proxy", [str(binaries / "kube-proxy"), f"--config={node.directory / 'kube-proxy.yaml'}"])


def wait_until_ready(machine: Machine, node: NodeLayout, binaries: Path, seconds: float = 60.0) -> None:
    """Wait until the API server reaches the kubelet. Raises NotReady, naming the log.

    A kubelet that exits is restarted: containerd may accept connections before its CRI service is ready.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            kubectl(binaries, ["get", "--raw", f"/api/v1/nodes/{node.name}/proxy/healthz"], seconds=10)
        except CommandFailed as error:
            if time.monotonic() > deadline:
                raise NotReady(f"kubelet of {node.name}: {error}; see {machine.log('kubelet')}") from error
            time.sleep(0.1)
            with suppress(NotReady):
                start(machine, node, binaries)
        else:
            return


def load_images(machine: Machine, node: NodeLayout, archives: list[Path]) -> None:
    """Wait for the node's containerd and import `archives` into it.

    Raises NotReady or CommandFailed; both name the log.
    """
    containers.wait_until_ready(machine, node)
    for archive in archives:
        try:
            containers.load_into(node, archive)
        except CommandFailed as error:
            raise CommandFailed(f"{error}; see {machine.log('containerd')}") from error
