"""Where the API server is and who we are: kubeconfig files and the in-cluster service account.

Source: "Organizing Cluster Access Using kubeconfig Files" and "Accessing the Kubernetes API from a Pod".
"""

from __future__ import annotations

import os
from pathlib import Path

from steersman.client.config import ClusterConfig, Impersonation
from steersman.client.credentials import TokenFile, load_pem
from steersman.errors import ConfigurationError

__all__ = ["SERVICE_ACCOUNT_DIRECTORY", "ClusterConfig", "Impersonation", "in_cluster_config", "load_config"]

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_config(path: str | Path | None = None, *, context: str | None = None) -> ClusterConfig:
    """Finds the cluster as kubectl does, or as a pod does when there is no kubeconfig.

    Args:
        path: a kubeconfig file. Without it: the files of ``$KUBECONFIG`` (merged, first wins), then the
            service account of the pod that we run in, then ``~/.kube/config``.
        context: a context's name; the file's current one unless told.

    Raises:
        ConfigurationError: nothing was found, or a field is missing or malformed.
    """
    # Not above: a pod needs neither YAML nor processes, and they cost each start of an operator.
    from steersman.client.kubeconfig import read_kubeconfig

    if path is not None:
        return read_kubeconfig([Path(path)], context)
    kubeconfig_files = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if kubeconfig_files:
        return read_kubeconfig(kubeconfig_files, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster_config()
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return read_kubeconfig([default], context)
    raise ConfigurationError(
        "no cluster is configured: set KUBECONFIG to a kubeconfig file, or run inside a pod with a service account"
    )


def in_cluster_config(directory: Path = SERVICE_ACCOUNT_DIRECTORY) -> ClusterConfig:
    """The identity of the pod's service account. Token and certificate authority are read again as they change.

    Raises:
        ConfigurationError: not in a pod, or the service account's token is not mounted.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigurationError("KUBERNETES_SERVICE_HOST is not set: this process does not run in a pod")
    token_file = directory / "token"
    if not token_file.exists():
        raise ConfigurationError(f"{token_file} is missing: set automountServiceAccountToken on the pod to true")
    ca = directory / "ca.crt"
    load_pem(ca, "certificate authority")
    namespace_file = directory / "namespace"
    return ClusterConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
        ca=ca,
        credentials=TokenFile(token_file),
        # Within a cluster the network is faster than gzip; kube-controller-manager asks for none either.
        disable_compression=True,
    )
