"""Which values a chart offers, with their defaults as the manifests have them."""

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
    """The values, in the order in which people read them."""
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
            "replicaCount", replicas, NON_NEGATIVE_INTEGER, "How many replicas; one works, and the others stand by."
        ),
        ChartValue("image.repository", repository, {**STRING, "minLength": 1}, "The operator's image."),
        ChartValue("image.tag", tag, STRING, "Its tag; the chart's appVersion unless given."),
        ChartValue(
            "image.digest",
            digest,
            {**STRING, "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "Its digest, sha256:…; in place of the tag.",
        ),
        ChartValue("image.pullPolicy", policy, one_of("Always", "IfNotPresent", "Never"), "When nodes pull it."),
        ChartValue("imagePullSecrets", model.manifests.pod.get("imagePullSecrets", []), OBJECT_LIST, "[{name: …}]"),
        ChartValue("nameOverride", "", STRING, "In place of the chart's name."),
        ChartValue("fullnameOverride", "", STRING, "What all objects are called; release and chart unless given."),
        ChartValue("serviceAccount.create", True, BOOLEAN, "Make a ServiceAccount."),
        ChartValue("serviceAccount.name", "", STRING, "Its name; that of the deployment unless given."),
        ChartValue(
            "serviceAccount.annotations",
            model.manifests.service_account["metadata"].get("annotations", {}),
            STRING_MAP,
            "Such as those by which clouds give it rights.",
        ),
        ChartValue("rbac.create", True, BOOLEAN, "Make roles and bindings."),
    ]


def _pod_values(model: ChartModel) -> list[ChartValue]:
    pod, container = model.manifests.pod, model.manifests.container
    template: dict[str, Any] = model.manifests.deployment["spec"]["template"]["metadata"]
    return [
        ChartValue("resources", container.get("resources", {}), RESOURCES, "Of the manager's container."),
        ChartValue("nodeSelector", pod.get("nodeSelector", {}), STRING_MAP, "Labels of nodes to run on."),
        ChartValue("tolerations", pod.get("tolerations", []), OBJECT_LIST, "Taints of nodes that are no hindrance."),
        ChartValue("affinity", pod.get("affinity", {}), OBJECT, "To nodes and to other pods."),
        ChartValue(
            "topologySpreadConstraints",
            pod.get("topologySpreadConstraints", []),
            OBJECT_LIST,
            "How replicas are spread over nodes and zones.",
        ),
        ChartValue("priorityClassName", pod.get("priorityClassName", ""), STRING, "A PriorityClass."),
        ChartValue("podSecurityContext", pod.get("securityContext", {}), OBJECT, "Of the pods."),
        ChartValue("securityContext", container.get("securityContext", {}), OBJECT, "Of the manager's container."),
        ChartValue("podAnnotations", template.get("annotations", {}), STRING_MAP, "Of the pods."),
        ChartValue("podLabels", {}, STRING_MAP, "Of the pods, beside the chart's own."),
        ChartValue("extraEnv", [], ENV_VARS, "Environment variables beside the operator's own."),
        ChartValue("extraArgs", [], list_of(STRING), "Arguments beside those that values stand for."),
        ChartValue("extraVolumes", [], OBJECT_LIST, "Volumes of the pods."),
        ChartValue("extraVolumeMounts", [], OBJECT_LIST, "Where the manager's container has them."),
    ]


def _behavior_values(model: ChartModel) -> list[ChartValue]:
    flags = model.flags
    namespaces = [n for n in flags.get("--namespaces", "").split(",") if n]
    return [
        ChartValue(
            "watchNamespaces",
            namespaces,
            {**list_of(NAMESPACE), "uniqueItems": True},
            "The only namespaces to watch, and to have rights in; all if empty.",
        ),
        ChartValue(
            "leaderElection.enabled",
            "--leader-elect" in flags,
            BOOLEAN,
            "Let one replica work at a time; by a Lease.",
        ),
        ChartValue(
            "logging.level",
            flags.get("--log-level", "info"),
            one_of(*get_args(LogLevel)),
            "The least that is logged.",
        ),
        ChartValue(
            "logging.format",
            flags.get("--log-format", "json"),
            one_of(*get_args(LogFormat)),
            "For programs or people.",
        ),
    ]


def _webhook_values(model: ChartModel) -> list[ChartValue]:
    issuers = ["self", "cert-manager"] if model.has_webhook_certificates else ["self"]
    comment = f"Who keeps the webhooks' certificate ({' or '.join(issuers)}); self is the operator."
    listed = any(m in model.manifests.manifests for m in model.webhook_certificates)
    default = "cert-manager" if listed else "self"
    return [ChartValue("webhooks.certificates", default, one_of(*issuers), comment)]


def _extras_values(model: ChartModel) -> list[ChartValue]:
    values: list[ChartValue] = []
    if port := model.port("metrics"):
        values += [
            ChartValue("metrics.service.enabled", False, BOOLEAN, "A Service before the metrics."),
            ChartValue(
                "metrics.service.port", port, {**NON_NEGATIVE_INTEGER, "minimum": 1, "maximum": 65535}, "Its port."
            ),
            ChartValue("metrics.service.annotations", {}, STRING_MAP, "Its annotations."),
            ChartValue(
                "metrics.serviceMonitor.enabled",
                False,
                BOOLEAN,
                "A ServiceMonitor for the Prometheus operator, and that Service.",
            ),
            ChartValue("metrics.serviceMonitor.labels", {}, STRING_MAP, "By which a Prometheus chooses it."),
            ChartValue(
                "metrics.serviceMonitor.interval", "", DURATION, "Between scrapes; Prometheus' own unless given."
            ),
        ]
    if model.monitors:
        listed = bool(model.manifests.of_kind("PodMonitor", "ServiceMonitor"))
        values.append(ChartValue("metrics.monitors.enabled", listed, BOOLEAN, "The monitors of config/prometheus."))
    values += [
        ChartValue("podDisruptionBudget.enabled", False, BOOLEAN, "A PodDisruptionBudget."),
        ChartValue(
            "podDisruptionBudget.minAvailable", "", INTEGER_OR_PERCENT, "A number or a percentage of replicas."
        ),
        ChartValue("podDisruptionBudget.maxUnavailable", 1, INTEGER_OR_PERCENT, "Unless minAvailable is given."),
    ]
    if model.network_policies:
        listed = bool(model.manifests.of_kind("NetworkPolicy"))
        values.append(ChartValue("networkPolicy.enabled", listed, BOOLEAN, "The policies of config/network-policy."))
    return values


def _crd_values(model: ChartModel) -> list[ChartValue]:
    if not model.manifests.crds:
        return []
    return [
        ChartValue("crds.install", True, BOOLEAN, "Install and upgrade the CustomResourceDefinitions."),
        ChartValue(
            "crds.keep", True, BOOLEAN, "Keep them, and with them all objects, when the release is uninstalled."
        ),
    ]


def split_image(image: str) -> tuple[str, str, str]:
    """Repository, tag and digest of an image's name; a port of a registry is no tag."""
    rest, _, digest = image.partition("@")
    head, slash, last = rest.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{head}{slash}{name}", tag, digest
