"""The certificates that servers and poolers of a cluster show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from database_support.cluster_engines import MYSQL, POSTGRESQL, Engine
from database_support.cluster_under_test import ClusterUnderTest

# Protocol::SSLRequest: TLS begins before anybody says who he is.
_ASK_MYSQL = """
import socket, ssl, struct
plain = socket.create_connection(("localhost", 3306), timeout=5)
plain.recv(4096)
request = struct.pack("<IIB23x", 0x8A00, 1 << 24, 45)
plain.sendall(struct.pack("<I", len(request) | 1 << 24) + request)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
print(ssl.DER_cert_to_PEM_cert(context.wrap_socket(plain).getpeercert(True)))
"""
_ASK_POSTGRESQL = "openssl s_client -connect localhost:5432 -starttls postgres </dev/null 2>/dev/null | openssl x509"
ASK: Mapping[Engine, Sequence[str]] = {
    POSTGRESQL: ("sh", "-c", _ASK_POSTGRESQL),
    MYSQL: ("python3", "-c", _ASK_MYSQL),
}


def shown(cluster: ClusterUnderTest, pod: str) -> str:
    """The certificate that a server or a pooler shows, in PEM."""
    return cluster.place.kubectl("exec", pod, "--", *ASK[cluster.engine]).strip()


def shown_by(cluster: ClusterUnderTest) -> set[str]:
    """Those of all instances."""
    return {shown(cluster, pod) for pod in cluster.pods()}
