"""Values of the chart, with their defaults from the manifests."""

from __future__ import annotations

from typing import Any, get_args

from steersman.observability.logging import LogFormat, LogLevel
from steersman_cli.packaging.chart.model import ChartModel
from steersman_cli.packaging.chart.values import (
    BOOLEAN,
    DURATION,
    ENV_VARS,
    INTEGER_OR_PERCENT,
    NAMESPACE,
    NON_NEGATIVE_INTEGER,
    OBJECT,
    OBJECT_LIST,
    RESOURCES,
    STRING,
    STRING_MAP,
    ChartValue,
    list_of,
    one_of,
)


def chart_values(model: ChartModel) -> list[ChartValue]:
    """Return the values in the order of ``values.yaml``."""
    return [
        *_identity_values(model),
        *_pod_values(model),
        *_behavior_values(model),
        *(_webhook_values(model) if model.has_webhooks else ()),
        *_extras_values(model),
        *_crd_values(model),
    ]


def _identity_values(model: ChartModel) -> list[ChartValue]:
    repository, tag, digest = split_image(model.image or model.manifests.name)
    policy = model.manifests.container.get("imagePullPolicy", "IfNotPresent")
    replicas = model.manifests.deployment["spec"].get("replicas", 1)
    return [
        ChartValue(
            "replicaCount",
            replicas,
            NON_NEGATIVE_INTEGER,
            "Number of replicas. One is the leader, the others stand by.",
        ),
        ChartValue("image.repository", repository, {**STRING, "minLength": 1}, "Image of the operator."),
        ChartValue("image.tag", tag, STRING, "Tag of the image. Defaults to the appVersion of the chart."),
        ChartValue(
            "image.digest",
            digest,
            {**STRING, "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "Digest of the image, sha256:…. It takes precedence over the tag.",
        ),
        ChartValue(
            "image.pullPolicy", policy, one_of("Always", "IfNotPresent", "Never"), "Pull policy of the image."
        ),
        ChartValue(
            "imagePullSecrets",
            model.manifests.pod.get("imagePullSecrets", []),
            OBJECT_LIST,
            "Secrets to pull the image: [{name: …}].",
        ),
        ChartValue("nameOverride", "", STRING, "Replaces the name of the chart in names of objects."),
        ChartValue("fullnameOverride", "", STRING, "Prefix of all names. Defaults to release and chart."),
        ChartValue("serviceAccount.create", True, BOOLEAN, "Create the ServiceAccount."),
        ChartValue(
            "serviceAccount.name", "", STRING, "Name of the ServiceAccount. Defaults to the name of the Deployment."
        ),
        ChartValue(
            "serviceAccount.annotations",
            model.manifests.service_account["metadata"].get("annotations", {}),
            STRING_MAP,
            "Annotations of the ServiceAccount, such as for cloud identities.",
        ),
        ChartValue("rbac.create", True, BOOLEAN, "Create roles and bindings."),
    ]


def _pod_values(model: ChartModel) -> list[ChartValue]:
    pod, container = model.manifests.pod, model.manifests.container
    template: dict[str, Any] = model.manifests.deployment["spec"]["template"]["metadata"]
    return [
        ChartValue("resources", container.get("resources", {}), RESOURCES, "Resources of the manager container."),
        ChartValue("nodeSelector", pod.get("nodeSelector", {}), STRING_MAP, "Node labels for scheduling."),
        ChartValue("tolerations", pod.get("tolerations", []), OBJECT_LIST, "Tolerations of the pods."),
        ChartValue("affinity", pod.get("affinity", {}), OBJECT, "Affinity of the pods."),
        ChartValue(
            "topologySpreadConstraints",
            pod.get("topologySpreadConstraints", []),
            OBJECT_LIST,
            "Topology spread constraints of the pods.",
        ),
        ChartValue("priorityClassName", pod.get("priorityClassName", ""), STRING, "PriorityClass of the pods."),
        ChartValue("podSecurityContext", pod.get("securityContext", {}), OBJECT, "Security context of the pods."),
        ChartValue(
            "securityContext",
            container.get("securityContext", {}),
            OBJECT,
            "Security context of the manager container.",
        ),
        ChartValue("podAnnotations", template.get("annotations", {}), STRING_MAP, "Annotations of the pods."),
        ChartValue("podLabels", {}, STRING_MAP, "Additional labels of the pods."),
        ChartValue("extraEnv", [], ENV_VARS, "Additional environment variables."),
        ChartValue("extraArgs", [], list_of(STRING), "Additional arguments of the manager."),
        ChartValue("extraVolumes", [], OBJECT_LIST, "Additional volumes of the pods."),
        ChartValue("extraVolumeMounts", [], OBJECT_LIST, "Additional volume mounts of the manager container."),
    ]


def _behavior_values(model: ChartModel) -> list[ChartValue]:
    flags = model.flags
    namespaces = [n for n in flags.get("--namespaces", "").split(",") if n]
    return [
        ChartValue(
            "watchNamespaces",
            namespaces,
            {**list_of(NAMESPACE), "uniqueItems": True},
            "Namespaces to watch, with permissions only there. Empty watches all.",
        ),
        ChartValue(
            "leaderElection.enabled",
            "--leader-elect" in flags,
            BOOLEAN,
            "Elect a leader by a Lease; only the leader reconciles.",
        ),
        ChartValue(
            "logging.level",
            flags.get("--log-level", "info"),
            one_of(*get_args(LogLevel)),
            "Minimum level of logs.",
        ),
        ChartValue(
            "logging.format",
            flags.get("--log-format", "json"),
            one_of(*get_args(LogFormat)),
            "Format of logs.",
        ),
    ]


def _webhook_values(model: ChartModel) -> list[ChartValue]:
    issuers = ["self", "cert-manager"] if model.has_webhook_certificates else ["self"]
    comment = f"Manager of the webhooks' certificate: {' or '.join(issuers)}; self is the operator."
    listed = any(m in model.manifests.manifests for m in model.webhook_certificates)
    default = "cert-manager" if listed else "self"
    return [ChartValue("webhooks.certificates", default, one_of(*issuers), comment)]


def _extras_values(model: ChartModel) -> list[ChartValue]:
    values: list[ChartValue] = []
    if port := model.port("metrics"):
        values += [
            ChartValue("metrics.service.enabled", False, BOOLEAN, "Create a Service for metrics."),
            ChartValue(
                "metrics.service.port",
                port,
                {**NON_NEGATIVE_INTEGER, "minimum": 1, "maximum": 65535},
                "Port of the metrics Service.",
            ),
            ChartValue("metrics.service.annotations", {}, STRING_MAP, "Annotations of the metrics Service."),
            ChartValue(
                "metrics.serviceMonitor.enabled",
                False,
                BOOLEAN,
                "Create a ServiceMonitor of the Prometheus operator, and the metrics Service.",
            ),
            ChartValue(
                "metrics.serviceMonitor.labels",
                {},
                STRING_MAP,
                "Labels of the ServiceMonitor, for the selector of Prometheus.",
            ),
            ChartValue(
                "metrics.serviceMonitor.interval",
                "",
                DURATION,
                "Scrape interval. Defaults to the interval of Prometheus.",
            ),
        ]
    if model.monitors:
        listed = bool(model.manifests.of_kind("PodMonitor", "ServiceMonitor"))
        values.append(
            ChartValue("metrics.monitors.enabled", listed, BOOLEAN, "Create the monitors of config/prometheus.")
        )
    budget = model.disruption_budget
    limits: dict[str, Any] = {} if budget is None else budget["spec"]
    values += [
        ChartValue("podDisruptionBudget.enabled", budget is not None, BOOLEAN, "Create a PodDisruptionBudget."),
        ChartValue(
            "podDisruptionBudget.minAvailable",
            limits.get("minAvailable", ""),
            INTEGER_OR_PERCENT,
            "Minimum of available replicas, a number or a percentage.",
        ),
        ChartValue(
            "podDisruptionBudget.maxUnavailable",
            limits.get("maxUnavailable", 1),
            INTEGER_OR_PERCENT,
            "Maximum of unavailable replicas, if minAvailable is empty.",
        ),
    ]
    if model.network_policies:
        listed = bool(model.manifests.of_kind("NetworkPolicy"))
        values.append(
            ChartValue("networkPolicy.enabled", listed, BOOLEAN, "Create the policies of config/network-policy.")
        )
    return values


def _crd_values(model: ChartModel) -> list[ChartValue]:
    if not model.manifests.crds:
        return []
    return [
        ChartValue("crds.install", True, BOOLEAN, "Install and upgrade the CustomResourceDefinitions."),
        ChartValue(
            "crds.keep", True, BOOLEAN, "Keep the CRDs and all their objects when the release is uninstalled."
        ),
    ]


def split_image(image: str) -> tuple[str, str, str]:
    """Split an image into repository, tag and digest."""
    rest, _, digest = image.partition("@")
    head, slash, last = rest.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{head}{slash}{name}", tag, digest
