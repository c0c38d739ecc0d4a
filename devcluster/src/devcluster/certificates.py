"""The cluster's certificates: one CA per trust domain, one identity per component.

The API server takes the user name from the certificate's common name and the groups from its organisations
(kubernetes.io/docs/reference/access-authn-authz/authentication/#x509-client-certificates). Only the first
`kubectl apply` of `up` is in `system:masters`, which no authorizer can restrict.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster import layout
from devcluster.layout import CONTROL_PLANE_ADDRESS, KUBERNETES_SERVICE_IP, NodeLayout

LIFETIME = timedelta(days=365)
ADMINISTRATORS_GROUP = "steersman:administrators"
VOLUMES_USER = "steersman:volumes"


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, name: str) -> "KeyPair":
        return cls(layout.PKI / f"{name}.crt", layout.PKI / f"{name}.key")


# Authorities
CLUSTER_CA = KeyPair.named("ca")
ETCD_CA = KeyPair.named("etcd-ca")
FRONT_PROXY_CA = KeyPair.named("front-proxy-ca")

# Certificates that they issue
API_SERVER = KeyPair.named("kube-apiserver")
API_SERVER_TO_KUBELET = KeyPair.named("kube-apiserver-kubelet-client")
API_SERVER_TO_ETCD = KeyPair.named("kube-apiserver-etcd-client")
ETCD_SERVER = KeyPair.named("etcd")
FRONT_PROXY_CLIENT = KeyPair.named("front-proxy-client")
SERVICE_ACCOUNTS = KeyPair.named("service-accounts")  # its key signs tokens; it has no certificate


def client(name: str) -> KeyPair:
    """Return the client certificate that belongs to a kubeconfig name."""
    return KeyPair.named(f"client-{name}")


def kubelet_server(node: NodeLayout) -> KeyPair:
    """Return the serving certificate of the kubelet."""
    return KeyPair.named(f"kubelet-{node.name}")


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
    cluster = _CertificateAuthority.create("steersman-devcluster", CLUSTER_CA)
    etcd = _CertificateAuthority.create("steersman-devcluster-etcd", ETCD_CA)
    front_proxy = _CertificateAuthority.create("steersman-devcluster-front-proxy", FRONT_PROXY_CA)

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
    _write_key(ec.generate_private_key(ec.SECP256R1()), SERVICE_ACCOUNTS.key)


def _write_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)


def _name(user: str, group: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group is not None:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)


def _alternative_name(value: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(value))
    except ValueError:
        return x509.DNSName(value)


@dataclass(frozen=True)
class _CertificateAuthority:
    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, common_name: str, pair: KeyPair) -> "_CertificateAuthority":
        authority = cls(_name(common_name), ec.generate_private_key(ec.SECP256R1()))
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = authority._builder(authority.name, authority.key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        authority._sign(builder, authority.key, pair)
        return authority

    def issue(self, pair: KeyPair, user: str, group: str | None = None, server: Sequence[str] = ()) -> None:
        """Issue a client certificate, or with `server` names a serving certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = self._builder(_name(user, group), key)
        if server:
            # etcd's gateway dials itself with its own certificate, so a server is a client too
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_alternative_name(value) for value in server])
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        self._sign(builder, key, pair)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
        )

    def _sign(self, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, pair: KeyPair) -> None:
        certificate = builder.sign(self.key, hashes.SHA256())
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(key, pair.key)
