"""Pods of the demo that use the databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WRITER, LOGINS = "writer", "logins"
_SCRIPTS = Path(__file__).parent / "apps"
_ACCOUNT = 10001


def scripts() -> dict[str, Any]:
    """ConfigMap with the programs of the applications."""
    data = {f"{name}.py": (_SCRIPTS / f"{name}.py").read_text() for name in (WRITER, LOGINS)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applications"}, "data": data}


def application(
    name: str, image: str, secret: str, environment: list[dict[str, Any]], script: str = ""
) -> dict[str, Any]:
    """A pod that runs a program, with its Secret mounted at ``/secret``.

    The program has the name of the pod by default.
    """
    return _pod(
        name,
        {
            "image": image,
            "command": ["python3", f"/scripts/{script or name}.py"],
            "env": environment,
            "volumeMounts": [
                {"name": "scripts", "mountPath": "/scripts", "readOnly": True},
                {"name": "secret", "mountPath": "/secret", "readOnly": True},
            ],
        },
        volumes=[
            {"name": "scripts", "configMap": {"name": "applications"}},
            {"name": "secret", "secret": {"secretName": secret, "defaultMode": 0o440}},
        ],
    )


def client(name: str, image: str, secret: str, statements: str) -> dict[str, Any]:
    """A pod that executes statements on MySQL and exits."""
    variables = {"DB_HOST": "host", "DB_PORT": "port", "DB": "dbname", "DB_USER": "user", "MYSQL_PWD": "password"}
    script = 'exec mysql -h "$DB_HOST" -P "$DB_PORT" -u "$DB_USER" -N -e "$STATEMENTS" "$DB"'
    environment = [*from_secret(secret, variables), {"name": "STATEMENTS", "value": statements}]
    return _pod(name, {"image": image, "command": ["sh", "-c", script], "env": environment})


def from_secret(secret: str, variables: dict[str, str]) -> list[dict[str, Any]]:
    """Environment variables, each from a key of a Secret."""
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for variable, key in variables.items()
    ]


def _pod(name: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": _ACCOUNT, "fsGroup": _ACCOUNT},
            "containers": [{"name": "application", "imagePullPolicy": "IfNotPresent", **container}],
            **spec,
        },
    }
