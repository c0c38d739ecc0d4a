"""The cluster's certificates: one CA per trust domain, one identity per component.

The API server takes the user name from the certificate's common name and the groups from its organisations
(kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates). Only the first
`kubectl apply` of `up` is in `system:masters`, which no authorizer can restrict.
"""

import ipaddress

from cryptography.hazmat.primitives.asymmetric import ec

from devcluster import layout
from devcluster.certificate_authority import CertificateAuthority, KeyPair, write_key
from devcluster.layout import CONTROL_PLANE_ADDRESS, KUBERNETES_SERVICE_IP, NodeLayout

ADMINISTRATORS_GROUP = "steersman:administrators"
VOLUMES_USER = "steersman:volumes"


def _pair(name: str) -> KeyPair:
    return KeyPair.named(name, layout.PKI)


# Authorities
CLUSTER_CA = _pair("ca")
ETCD_CA = _pair("etcd-ca")
FRONT_PROXY_CA = _pair("front-proxy-ca")

# Certificates that they issue
API_SERVER = _pair("kube-apiserver")
API_SERVER_TO_KUBELET = _pair("kube-apiserver-kubelet-client")
API_SERVER_TO_ETCD = _pair("kube-apiserver-etcd-client")
ETCD_SERVER = _pair("etcd")
FRONT_PROXY_CLIENT = _pair("front-proxy-client")
SERVICE_ACCOUNTS = _pair("service-accounts")  # its key signs tokens; it has no certificate


def client(name: str) -> KeyPair:
    """Return the client certificate that belongs to a kubeconfig name."""
    return _pair(f"client-{name}")


def kubelet_server(node: NodeLayout) -> KeyPair:
    """Return the serving certificate of the kubelet."""
    return _pair(f"kubelet-{node.name}")


def identities() -> dict[str, tuple[str, str | None]]:
    """Map each kubeconfig name to its user and group."""
    return {
        "admin": ("steersman:admin", ADMINISTRATORS_GROUP),
        "bootstrap": ("steersman:bootstrap", "system:masters"),
        "kube-controller-manager": ("system:kube-controller-manager", None),
        "kube-scheduler": ("system:kube-scheduler", None),
        "volumes": (VOLUMES_USER, None),
        **{f"kubelet-{node.name}": (f"system:node:{node.name}", "system:nodes") for node in layout.NODES},
        **{f"kube-proxy-{node.name}": ("system:kube-proxy", None) for node in layout.NODES},
    }


def issue_all(link: ipaddress.IPv4Network) -> None:
    """Issue all certificates below `layout.PKI` again.

    `link` is the range between host and control plane; the API server has its second address.
    """
    layout.PKI.mkdir(parents=True, exist_ok=True, mode=0o700)
    cluster = CertificateAuthority.create("steersman-devcluster", CLUSTER_CA)
    etcd = CertificateAuthority.create("steersman-devcluster-etcd", ETCD_CA)
    front_proxy = CertificateAuthority.create("steersman-devcluster-front-proxy", FRONT_PROXY_CA)

    local = ("localhost", "127.0.0.1")
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    cluster.issue(
        API_SERVER,
        "kube-apiserver",
        server=(
            *local,
            *service,
            f"kubernetes.default.svc.{layout.CLUSTER_DOMAIN}",
            str(KUBERNETES_SERVICE_IP),
            str(CONTROL_PLANE_ADDRESS),
            str(link[2]),
        ),
    )
    etcd.issue(ETCD_SERVER, "etcd", server=local)
    etcd.issue(API_SERVER_TO_ETCD, "kube-apiserver")
    front_proxy.issue(FRONT_PROXY_CLIENT, "front-proxy-client")
    cluster.issue(API_SERVER_TO_KUBELET, "steersman:kube-apiserver")
    for node in layout.NODES:
        cluster.issue(
            kubelet_server(node),
            f"system:node:{node.name}",
            "system:nodes",
            server=(node.name, str(node.address)),
        )
    for name, (user, group) in identities().items():
        cluster.issue(client(name), user, group)
    write_key(ec.generate_private_key(ec.SECP256R1()), SERVICE_ACCOUNTS.key)
