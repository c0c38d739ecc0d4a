"""Kubeconfig files: the administrator's, and one for each component."""

import ipaddress
from base64 import b64encode
from pathlib import Path

import yaml

from devcluster import certificates, layout
from devcluster.layout import API_SERVER_PORT, CONTROL_PLANE_ADDRESS

CONTEXT = layout.CLUSTER_NAME


def component_path(name: str) -> Path:
    """The kubeconfig of a component, by its name in `certificates.identities`."""
    return layout.PKI / f"{name}.kubeconfig"


def server_url(link: ipaddress.IPv4Network) -> str:
    """The API server's URL for the host."""
    return f"https://{link[2]}:{API_SERVER_PORT}"


def write_all(link: ipaddress.IPv4Network) -> None:
    """Write all kubeconfigs, of the components and of the administrator."""
    internal_url = f"https://{layout.url_host(CONTROL_PLANE_ADDRESS)}:{API_SERVER_PORT}"
    for name in certificates.identities():
        external = name in ("admin", "bootstrap")
        path = layout.KUBECONFIG if name == "admin" else component_path(name)
        _write(path, name, server_url(link) if external else internal_url)


def _write(path: Path, name: str, url: str) -> None:
    def base64_content(file: Path) -> str:
        return b64encode(file.read_bytes()).decode()

    pair = certificates.client(name)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": CONTEXT,
                "cluster": {
                    "server": url,
                    "certificate-authority-data": base64_content(certificates.CLUSTER_CA.certificate),
                },
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": base64_content(pair.certificate),
                    "client-key-data": base64_content(pair.key),
                },
            }
        ],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": name}}],
        "current-context": CONTEXT,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
