"""Apply configurations of many shapes, as operators write them."""

from __future__ import annotations

from typing import Any

from framework_support.widget import WidgetApply, WidgetSpecApply
from steersman.api.apply import apps, core, meta, rbac
from steersman.meta import ApplyConfiguration, decode_builtins

NAMESPACE = "default"


def metadata(name: str, **fields: Any) -> meta.ObjectMeta:
    return meta.ObjectMeta(name=name, namespace=NAMESPACE, **fields)


def deployment() -> apps.Deployment:
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
    return decode_builtins(document, apps.Deployment)


def statefulset() -> apps.StatefulSet:
    template = core.PodTemplateSpec(
        spec=core.PodSpec(
            containers=[
                core.Container(
                    name="db",
                    image="db:1",
                    ports=[core.ContainerPort(container_port=5432, name="db")],
                    env=[core.EnvVar(name="PGDATA", value="/data")],
                )
            ]
        )
    )
    claim = core.PersistentVolumeClaim(
        metadata=meta.ObjectMeta(name="data"),
        spec=decode_builtins(
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            core.PersistentVolumeClaimSpec,
        ),
    )
    body: dict[str, Any] = {"matchLabels": {"app": "db"}}
    labelled = decode_builtins({"metadata": {"labels": {"app": "db"}}}, core.PodTemplateSpec)
    spec = decode_builtins({"selector": body, "serviceName": "db", "replicas": 1}, apps.StatefulSetSpec)
    return apps.StatefulSet(
        metadata=metadata("db"),
        spec=apps.StatefulSetSpec(
            selector=spec.selector,
            service_name="db",
            replicas=1,
            template=core.PodTemplateSpec(metadata=labelled.metadata, spec=template.spec),
            volume_claim_templates=[claim],
        ),
    )


def service(*ports: int) -> core.Service:
    return core.Service(
        metadata=metadata("web"),
        spec=core.ServiceSpec(
            selector={"app": "web"}, ports=[core.ServicePort(name=f"p{port}", port=port) for port in ports]
        ),
    )


def all_apply_configurations() -> dict[str, ApplyConfiguration[Any]]:
    """All apply configurations by name."""
    return {
        "a config map": core.ConfigMap(metadata=metadata("c"), data={"a": "1", "b": ""}),
        "a config map with labels and finalizers": core.ConfigMap(
            metadata=metadata("d", labels={"x": "y"}, annotations={"n": ""}, finalizers=["example.com/hold"]), data={}
        ),
        "a secret": core.Secret(metadata=metadata("s"), data={"password": b"s3cret"}, type="Opaque"),
        "a service account": core.ServiceAccount(metadata=metadata("sa"), automount_service_account_token=False),
        "a role": rbac.Role(
            metadata=metadata("r"),
            rules=[rbac.PolicyRule(api_groups=[""], resources=["pods"], verbs=["get", "list"])],
        ),
        "a service": service(80, 443),
        "a deployment": deployment(),
        "a stateful set": statefulset(),
        "a custom resource": WidgetApply(metadata=metadata("b", labels={"l": "1"}), spec=WidgetSpecApply(depth=3)),
    }
