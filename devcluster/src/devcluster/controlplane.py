"""The components of the control plane: etcd, API server, controllers, scheduler."""

import ipaddress
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from devcluster import certificates, kubeconfig, layout
from devcluster.certificate_authority import KeyPair
from devcluster.errors import NotReady
from devcluster.layout import API_SERVER_PORT, CONTROL_PLANE_ADDRESS, SERVICE_CIDR
from devcluster.machine import Machine

ETCD_URL = "https://127.0.0.1:2379"
ETCD_PEER_URL = "https://127.0.0.1:2380"


def _tls(pair: KeyPair, certificate: str, key: str) -> list[str]:
    return [f"--{certificate}={pair.certificate}", f"--{key}={pair.key}"]


def etcd(binaries: Path) -> list[str]:
    """Return etcd's command line; without fsync, since test clusters may lose data."""
    return [
        str(binaries / "etcd"),
        "--name=devcluster",
        f"--data-dir={layout.STATE / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={ETCD_URL}",
        f"--advertise-client-urls={ETCD_URL}",
        f"--listen-peer-urls={ETCD_PEER_URL}",
        f"--initial-advertise-peer-urls={ETCD_PEER_URL}",
        f"--initial-cluster=devcluster={ETCD_PEER_URL}",
        *_tls(certificates.ETCD_SERVER, "cert-file", "key-file"),
        f"--trusted-ca-file={certificates.ETCD_CA.certificate}",
        "--client-cert-auth",
        *_tls(certificates.ETCD_SERVER, "peer-cert-file", "peer-key-file"),
        f"--peer-trusted-ca-file={certificates.ETCD_CA.certificate}",
        "--peer-client-cert-auth",
    ]


def kube_apiserver(binaries: Path) -> list[str]:
    """The API server's command line.

    `--enable-aggregator-routing`: webhooks and aggregated APIs are reached at the addresses of their pods, since
    no kube-proxy serves the control plane.
    """
    return [
        str(binaries / "kube-apiserver"),
        f"--bind-address={layout.ANY_ADDRESS}",
        f"--advertise-address={CONTROL_PLANE_ADDRESS}",
        f"--secure-port={API_SERVER_PORT}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        "--enable-aggregator-routing",
        "--profiling=false",
        f"--client-ca-file={certificates.CLUSTER_CA.certificate}",
        *_tls(certificates.API_SERVER, "tls-cert-file", "tls-private-key-file"),
        f"--etcd-servers={ETCD_URL}",
        f"--etcd-cafile={certificates.ETCD_CA.certificate}",
        *_tls(certificates.API_SERVER_TO_ETCD, "etcd-certfile", "etcd-keyfile"),
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={certificates.CLUSTER_CA.certificate}",
        *_tls(certificates.API_SERVER_TO_KUBELET, "kubelet-client-certificate", "kubelet-client-key"),
        f"--service-account-issuer=https://kubernetes.default.svc.{layout.CLUSTER_DOMAIN}",
        f"--service-account-key-file={certificates.SERVICE_ACCOUNTS.key}",
        f"--service-account-signing-key-file={certificates.SERVICE_ACCOUNTS.key}",
        f"--requestheader-client-ca-file={certificates.FRONT_PROXY_CA.certificate}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        *_tls(certificates.FRONT_PROXY_CLIENT, "proxy-client-cert-file", "proxy-client-key-file"),
    ]


def _delegating(name: str) -> list[str]:
    config = kubeconfig.component_path(name)
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--profiling=false",
    ]


def kube_controller_manager(binaries: Path) -> list[str]:
    """Return the controller manager's command line, with default node monitoring."""
    return [
        str(binaries / "kube-controller-manager"),
        *_delegating("kube-controller-manager"),
        "--use-service-account-credentials",
        f"--root-ca-file={certificates.CLUSTER_CA.certificate}",
        f"--service-account-private-key-file={certificates.SERVICE_ACCOUNTS.key}",
        f"--cluster-signing-cert-file={certificates.CLUSTER_CA.certificate}",
        f"--cluster-signing-key-file={certificates.CLUSTER_CA.key}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
    ]


def kube_scheduler(binaries: Path) -> list[str]:
    """The scheduler's command line."""
    return [str(binaries / "kube-scheduler"), *_delegating("kube-scheduler")]


def volumes(binaries: Path) -> list[str]:
    """The command line of the provisioner of the StorageClass `standard`."""
    return [
        str(binaries / "volumes"),
        f"--kubeconfig={kubeconfig.component_path('volumes')}",
        f"--root={layout.STATE / 'nodes'}",
    ]


STORAGE = ("etcd", "kube-apiserver")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler", "volumes")
COMMANDS = {
    "etcd": etcd,
    "kube-apiserver": kube_apiserver,
    "kube-controller-manager": kube_controller_manager,
    "kube-scheduler": kube_scheduler,
    "volumes": volumes,
}


def start(machine: Machine, names: tuple[str, ...], binaries: Path) -> None:
    """Start those components of `names` that do not run."""
    for name in names:
        machine.start(name, COMMANDS[name](binaries))


def wait_until_ready(machine: Machine, link: ipaddress.IPv4Network, seconds: float = 60.0) -> None:
    """Wait until the host reaches a ready API server.

    Raises NotReady, naming the log, when it ended or `seconds` have passed.
    """
    trust = ssl.create_default_context(cafile=str(certificates.CLUSTER_CA.certificate))
    no_proxy = urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(no_proxy, urllib.request.HTTPSHandler(context=trust))
    deadline = time.monotonic() + seconds
    while True:
        try:
            with opener.open(f"{kubeconfig.server_url(link)}/readyz", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            for name in STORAGE:
                if not machine.is_running(name):
                    raise NotReady(f"{name} ended; see {machine.log(name)}") from error
            if time.monotonic() > deadline:
                log = machine.log("kube-apiserver")
                raise NotReady(f"kube-apiserver is not ready after {seconds:.0f} s ({error}); see {log}") from error
        time.sleep(0.05)
