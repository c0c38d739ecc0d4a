"""Loading of the client configuration from kubeconfig files or the service account.

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
    """Load the configuration from a kubeconfig or the pod's service account.

    Args:
        path: a kubeconfig file. Defaults to the files of ``$KUBECONFIG``, merged so that the first file takes
            precedence. If the variable is not set, the service account of the pod is used, or else
            ``~/.kube/config``.
        context: name of a context. Defaults to the current context of the kubeconfig.

    Raises:
        ConfigurationError: there is no configuration, or a field is missing or malformed.
    """
    # Imported here, because a pod needs neither YAML nor subprocesses, and importing them slows its start.
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
        "no cluster is configured: set KUBECONFIG to a kubeconfig file, or run in a pod with a service account"
    )


def in_cluster_config(directory: Path = SERVICE_ACCOUNT_DIRECTORY) -> ClusterConfig:
    """Return the configuration of the pod's service account.

    Token and certificate authority are reloaded when their files change.

    Args:
        directory: mount path of the service account volume.

    Raises:
        ConfigurationError: the process does not run in a pod, or the token is not mounted.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigurationError("KUBERNETES_SERVICE_HOST is not set: this process does not run in a pod")
    token_file = directory / "token"
    if not token_file.exists():
        raise ConfigurationError(f"{token_file} does not exist: set automountServiceAccountToken of the pod to true")
    ca = directory / "ca.crt"
    load_pem(ca, "certificate authority")
    namespace_file = directory / "namespace"
    return ClusterConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
        ca=ca,
        credentials=TokenFile(token_file),
        # The network of a cluster is faster than gzip. kube-controller-manager disables it as well.
        disable_compression=True,
    )
