"""Apply configurations of many shapes, as operators write them."""

from __future__ import annotations

from typing import Any

from framework_support.widget import WidgetApply, WidgetSpecApply
from steersman.api.apply.apps_v1 import DeploymentApply, StatefulSetApply, StatefulSetSpecApply
from steersman.api.apply.core_v1 import (
    ConfigMapApply,
    ContainerApply,
    ContainerPortApply,
    EnvVarApply,
    PersistentVolumeClaimApply,
    PersistentVolumeClaimSpecApply,
    PodSpecApply,
    PodTemplateSpecApply,
    SecretApply,
    ServiceAccountApply,
    ServiceApply,
    ServicePortApply,
    ServiceSpecApply,
)
from steersman.api.apply.rbac_v1 import PolicyRuleApply, RoleApply
from steersman.meta import ApplyConfiguration, ObjectMetaApply, decode_builtins

NAMESPACE = "default"


def metadata(name: str, **fields: Any) -> ObjectMetaApply:
    return ObjectMetaApply(name=name, namespace=NAMESPACE, **fields)


def deployment() -> DeploymentApply:
    spec: dict[str, Any] = {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}},
        "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"checksum": "1"}},
            "spec": {
                "securityContext": {"runAsNonRoot": True, "fsGroup": 26, "supplementalGroups": [1, 2]},
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "web",
                        "image": "web:1",
                        "args": ["--flag", "value"],
                        "ports": [{"containerPort": 80}, {"containerPort": 81, "name": "admin", "protocol": "TCP"}],
                        "env": [
                            {"name": "A", "value": "1"},
                            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                            {"name": "EMPTY", "value": ""},
                        ],
                        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
                        "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 2},
                        "livenessProbe": {"exec": {"command": ["true"]}},
                        "volumeMounts": [
                            {"name": "data", "mountPath": "/data"},
                            {"name": "tmp", "mountPath": "/tmp"},
                        ],
                    }
                ],
                "volumes": [
                    {"name": "data", "emptyDir": {}},
                    {"name": "tmp", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
                ],
                "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
            },
        },
    }
    document = {"metadata": {"name": "web", "namespace": NAMESPACE, "labels": {"app": "web"}}, "spec": spec}
    return decode_builtins(document, DeploymentApply)


def statefulset() -> StatefulSetApply:
    template = PodTemplateSpecApply(
        spec=PodSpecApply(
            containers=[
                ContainerApply(
                    name="db",
                    image="db:1",
                    ports=[ContainerPortApply(container_port=5432, name="db")],
                    env=[EnvVarApply(name="PGDATA", value="/data")],
                )
            ]
        )
    )
    claim = PersistentVolumeClaimApply(
        metadata=ObjectMetaApply(name="data"),
        spec=decode_builtins(
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            PersistentVolumeClaimSpecApply,
        ),
    )
    body: dict[str, Any] = {"matchLabels": {"app": "db"}}
    labelled = decode_builtins({"metadata": {"labels": {"app": "db"}}}, PodTemplateSpecApply)
    spec = decode_builtins({"selector": body, "serviceName": "db", "replicas": 1}, StatefulSetSpecApply)
    return StatefulSetApply(
        metadata=metadata("db"),
        spec=StatefulSetSpecApply(
            selector=spec.selector,
            service_name="db",
            replicas=1,
            template=PodTemplateSpecApply(metadata=labelled.metadata, spec=template.spec),
            volume_claim_templates=[claim],
        ),
    )


def service(*ports: int) -> ServiceApply:
    return ServiceApply(
        metadata=metadata("web"),
        spec=ServiceSpecApply(
            selector={"app": "web"}, ports=[ServicePortApply(name=f"p{port}", port=port) for port in ports]
        ),
    )


def all_apply_configurations() -> dict[str, ApplyConfiguration[Any]]:
    """All apply configurations by name."""
    return {
        "a config map": ConfigMapApply(metadata=metadata("c"), data={"a": "1", "b": ""}),
        "a config map with labels and finalizers": ConfigMapApply(
            metadata=metadata("d", labels={"x": "y"}, annotations={"n": ""}, finalizers=["example.com/hold"]), data={}
        ),
        "a secret": SecretApply(metadata=metadata("s"), data={"password": b"s3cret"}, type="Opaque"),
        "a service account": ServiceAccountApply(metadata=metadata("sa"), automount_service_account_token=False),
        "a role": RoleApply(
            metadata=metadata("r"),
            rules=[PolicyRuleApply(api_groups=[""], resources=["pods"], verbs=["get", "list"])],
        ),
        "a service": service(80, 443),
        "a deployment": deployment(),
        "a stateful set": statefulset(),
        "a custom resource": WidgetApply(metadata=metadata("b", labels={"l": "1"}), spec=WidgetSpecApply(depth=3)),
    }
