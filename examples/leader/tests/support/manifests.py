"""Manifests of the end-to-end test: the sample with a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SAMPLES = Path(__file__).parents[2] / "config/samples"
STORE_PORT = 7000


def leader_manifests(image: str, scripts: dict[str, str]) -> list[dict[str, Any]]:
    """Return all objects.

    Args:
        image: image of all containers.
        scripts: files of the store and the application.
    """
    objects: list[dict[str, Any]] = [
        document
        for name in ("leader_v1_leaderservice.yaml", "application.yaml")
        for document in yaml.safe_load_all((SAMPLES / name).read_text())
    ]
    for document in objects:
        if document["kind"] == "StatefulSet":
            _use_store(document["spec"]["template"]["spec"], image)
    scripts_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": scripts}
    return [scripts_map, *_store(image), *objects]


def _use_store(pod: dict[str, Any], image: str) -> None:
    (sidecar,), (app,) = pod["initContainers"], pod["containers"]
    sidecar["image"] = app["image"] = image
    app["command"] = ["python3", "/scripts/application.py"]
    app["args"] = ["$(POD_NAME)", "4040", "store", str(STORE_PORT)]
    app["env"] = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    app["volumeMounts"] = [{"name": "scripts", "mountPath": "/scripts"}]
    pod["volumes"] = [{"name": "scripts", "configMap": {"name": "scripts"}}]


def _store(image: str) -> list[dict[str, Any]]:
    labels = {"app": "store"}
    container = {
        "name": "store",
        "image": image,
        "command": ["python3", "/scripts/store_server.py", str(STORE_PORT)],
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    volumes = [{"name": "scripts", "configMap": {"name": "scripts"}}]
    spec = {"containers": [container], "securityContext": security, "volumes": volumes}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "store", "labels": labels}, "spec": spec}
    ports = [{"port": STORE_PORT, "targetPort": STORE_PORT}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "store"}}
    return [pod, service | {"spec": {"selector": labels, "ports": ports}}]
