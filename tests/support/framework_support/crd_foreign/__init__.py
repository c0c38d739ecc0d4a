"""Definitions of well-known projects, made by controller-gen from their Go types."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from devcluster import layout, lock
from steersman.meta.yaml_codec import load_yaml_documents

_MODULE = Path(__file__).parent / "go"
_OPTIONS = "crd:allowDangerousTypes=true"
PACKAGES = (
    "github.com/cert-manager/cert-manager/pkg/apis/acme/v1",
    "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1",
    "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1",
    "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1alpha1",
    "sigs.k8s.io/gateway-api/apis/v1",
    "sigs.k8s.io/gateway-api/apis/v1beta1",
)
KINDS = (
    *("Certificate", "CertificateRequest", "Challenge", "ClusterIssuer", "Issuer", "Order"),
    *("Alertmanager", "AlertmanagerConfig", "PodMonitor", "Probe", "Prometheus", "PrometheusAgent", "PrometheusRule"),
    *("ScrapeConfig", "ServiceMonitor", "ThanosRuler"),
    *("BackendTLSPolicy", "GRPCRoute", "Gateway", "GatewayClass", "HTTPRoute", "ListenerSet", "ReferenceGrant"),
    "TLSRoute",
)


@cache
def foreign() -> dict[str, dict[str, Any]]:
    """The definitions by their kinds. Shared: not to be changed."""
    files = sorted(written().glob("*.yaml"))
    found = {m["spec"]["names"]["kind"]: m for file in files for m in load_yaml_documents(file.read_text())}
    for manifest in found.values():
        if manifest["spec"]["group"].endswith(".k8s.io"):
            # The project's own program adds it; the API server wants it.
            manifest["metadata"]["annotations"]["api-approved.kubernetes.io"] = "https://github.com/kubernetes-sigs"
    return found


def written() -> Path:
    """The directory of what controller-gen wrote, which is kept like the programs of the devcluster."""
    place = layout.cache_directory() / "crd-foreign"
    directory = place / _key()
    with lock.exclusive(place / ".lock", lambda: None):
        if not directory.is_dir():
            unfinished = place / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            paths = [f"paths={package}" for package in PACKAGES]
            tool = ["go", "run", "-p", "2", "sigs.k8s.io/controller-tools/cmd/controller-gen"]
            done = subprocess.run(
                [*tool, _OPTIONS, *paths, f"output:crd:dir={unfinished}"],
                cwd=_MODULE,
                env={**os.environ, "CGO_ENABLED": "0"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3000:]
            unfinished.rename(directory)
    return directory


def _key() -> str:
    digest = hashlib.sha256("\n".join((_OPTIONS, *PACKAGES)).encode())
    for source in (_MODULE / "go.mod", _MODULE / "go.sum"):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
