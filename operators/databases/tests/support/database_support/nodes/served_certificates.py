"""The certificates that servers and poolers of a cluster show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import MYSQL, POSTGRESQL, EngineCommands

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
PROBE_COMMAND: Mapping[EngineCommands, Sequence[str]] = {
    POSTGRESQL: ("sh", "-c", _ASK_POSTGRESQL),
    MYSQL: ("python3", "-c", _ASK_MYSQL),
}


def served_certificate(cluster: ClusterUnderTest, pod: str) -> str:
    """The certificate that a server or a pooler shows, in PEM."""
    return cluster.namespace_client.kubectl("exec", pod, "--", *PROBE_COMMAND[cluster.engine]).strip()


def served_certificates(cluster: ClusterUnderTest) -> set[str]:
    """Those of all instances."""
    return {served_certificate(cluster, pod) for pod in cluster.pods()}
