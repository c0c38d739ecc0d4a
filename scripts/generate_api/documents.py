"""Loads the OpenAPI v3 documents of Kubernetes, one per group-version."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GVK_KEY = "x-kubernetes-group-version-kind"
OPERATIONS = ("delete", "get", "patch", "post", "put")

KUBERNETES_VERSION = "v1.36.3"

# URL path of the group-version of each generated module.
GROUP_VERSIONS: Mapping[str, str] = {
    "admissionregistration_v1": "apis/admissionregistration.k8s.io/v1",
    "apiextensions_v1": "apis/apiextensions.k8s.io/v1",
    "apps_v1": "apis/apps/v1",
    "authentication_v1": "apis/authentication.k8s.io/v1",
    "authorization_v1": "apis/authorization.k8s.io/v1",
    "autoscaling_v1": "apis/autoscaling/v1",
    "autoscaling_v2": "apis/autoscaling/v2",
    "batch_v1": "apis/batch/v1",
    "certificates_v1": "apis/certificates.k8s.io/v1",
    "coordination_v1": "apis/coordination.k8s.io/v1",
    "core_v1": "api/v1",
    "discovery_v1": "apis/discovery.k8s.io/v1",
    "events_v1": "apis/events.k8s.io/v1",
    "networking_v1": "apis/networking.k8s.io/v1",
    "policy_v1": "apis/policy/v1",
    "rbac_v1": "apis/rbac.authorization.k8s.io/v1",
    "scheduling_v1": "apis/scheduling.k8s.io/v1",
    "storage_v1": "apis/storage.k8s.io/v1",
}

Documents = dict[str, dict[str, Any]]
"""The document of each group-version, by module name."""


def go_module_directory() -> Path:
    """The directory of the documents in the Go module of Kubernetes. Downloads the module if necessary."""
    module = f"k8s.io/kubernetes@{KUBERNETES_VERSION}"
    # In / no go.mod pins another version.
    completed = subprocess.run(
        ["go", "mod", "download", "-json", module], cwd="/", capture_output=True, text=True, check=True
    )
    return Path(json.loads(completed.stdout)["Dir"]) / "api/openapi-spec/v3"


def from_directory(directory: Path) -> Documents:
    """Load documents with the file names of the Kubernetes repository."""
    files = {module: directory / openapi_file_name(path) for module, path in GROUP_VERSIONS.items()}
    return {module: json.loads(file.read_text()) for module, file in files.items() if file.exists()}


def from_server(kubectl: str) -> Documents:
    """Load the documents from the API server of ``kubectl``."""

    def get(path: str) -> Any:
        completed = subprocess.run([kubectl, "get", "--raw", path], capture_output=True, text=True, check=True)
        return json.loads(completed.stdout)

    index = get("/openapi/v3")["paths"]
    return {module: get(index[path]["serverRelativeURL"]) for module, path in GROUP_VERSIONS.items()}


def group_version_kinds(item: dict[str, Any]) -> list[dict[str, str]]:
    """Group, version and kind of each operation of an OpenAPI path item."""
    operations = [item[verb] for verb in OPERATIONS if verb in item]
    return [operation[GVK_KEY] for operation in operations if GVK_KEY in operation]


def openapi_file_name(path: str) -> str:
    """The file name of the group-version at a URL path."""
    return f"{path.replace('/', '__')}_openapi.json"
