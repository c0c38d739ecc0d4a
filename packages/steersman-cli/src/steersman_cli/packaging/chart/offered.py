"""Which values a chart offers, with their defaults as the manifests have them."""

from __future__ import annotations

from typing import Any, get_args

from steersman.observability.logging import LogFormat, LogLevel
from steersman_cli.packaging.chart.parts import Parts
from steersman_cli.packaging.chart.values import (
    AMOUNT,
    COUNT,
    DURATION,
    ENV,
    NAMESPACE,
    OBJECT,
    OBJECTS,
    RESOURCES,
    SWITCH,
    TEXT,
    TEXTS,
    Value,
    list_of,
    one_of,
)


def offered(parts: Parts) -> list[Value]:
    """The values, in the order in which people read them."""
    return [
        *_identity(parts),
        *_pods(parts),
        *_behaviour(parts),
        *(_webhooks(parts) if parts.has_webhooks else ()),
        *_around(parts),
        *_definitions(parts),
    ]


def _identity(parts: Parts) -> list[Value]:
    repository, tag, digest = split_image(parts.image or parts.installation.name)
    policy = parts.installation.container.get("imagePullPolicy", "IfNotPresent")
    replicas = parts.installation.deployment["spec"].get("replicas", 1)
    return [
        Value("replicaCount", replicas, COUNT, "How many replicas; one works, and the others stand by."),
        Value("image.repository", repository, {**TEXT, "minLength": 1}, "The operator's image."),
        Value("image.tag", tag, TEXT, "Its tag; the chart's appVersion unless given."),
        Value(
            "image.digest",
            digest,
            {**TEXT, "pattern": "^(sha256:[0-9a-f]{64})?$"},
            "Its digest, sha256:…; in place of the tag.",
        ),
        Value("image.pullPolicy", policy, one_of("Always", "IfNotPresent", "Never"), "When nodes pull it."),
        Value("imagePullSecrets", parts.installation.pod.get("imagePullSecrets", []), OBJECTS, "[{name: …}]"),
        Value("nameOverride", "", TEXT, "In place of the chart's name."),
        Value("fullnameOverride", "", TEXT, "What all objects are called; release and chart unless given."),
        Value("serviceAccount.create", True, SWITCH, "Make a ServiceAccount."),
        Value("serviceAccount.name", "", TEXT, "Its name; that of the deployment unless given."),
        Value(
            "serviceAccount.annotations",
            parts.installation.service_account["metadata"].get("annotations", {}),
            TEXTS,
            "Such as those by which clouds give it rights.",
        ),
        Value("rbac.create", True, SWITCH, "Make roles and bindings."),
    ]


def _pods(parts: Parts) -> list[Value]:
    pod, container = parts.installation.pod, parts.installation.container
    template: dict[str, Any] = parts.installation.deployment["spec"]["template"]["metadata"]
    return [
        Value("resources", container.get("resources", {}), RESOURCES, "Of the manager's container."),
        Value("nodeSelector", pod.get("nodeSelector", {}), TEXTS, "Labels of nodes to run on."),
        Value("tolerations", pod.get("tolerations", []), OBJECTS, "Taints of nodes that are no hindrance."),
        Value("affinity", pod.get("affinity", {}), OBJECT, "To nodes and to other pods."),
        Value(
            "topologySpreadConstraints",
            pod.get("topologySpreadConstraints", []),
            OBJECTS,
            "How replicas are spread over nodes and zones.",
        ),
        Value("priorityClassName", pod.get("priorityClassName", ""), TEXT, "A PriorityClass."),
        Value("podSecurityContext", pod.get("securityContext", {}), OBJECT, "Of the pods."),
        Value("securityContext", container.get("securityContext", {}), OBJECT, "Of the manager's container."),
        Value("podAnnotations", template.get("annotations", {}), TEXTS, "Of the pods."),
        Value("podLabels", {}, TEXTS, "Of the pods, beside the chart's own."),
        Value("extraEnv", [], ENV, "Environment variables beside the operator's own."),
        Value("extraArgs", [], list_of(TEXT), "Arguments beside those that values stand for."),
        Value("extraVolumes", [], OBJECTS, "Volumes of the pods."),
        Value("extraVolumeMounts", [], OBJECTS, "Where the manager's container has them."),
    ]


def _behaviour(parts: Parts) -> list[Value]:
    flags = parts.flags
    namespaces = [n for n in flags.get("--namespaces", "").split(",") if n]
    return [
        Value(
            "watchNamespaces",
            namespaces,
            {**list_of(NAMESPACE), "uniqueItems": True},
            "The only namespaces to watch, and to have rights in; all if empty.",
        ),
        Value(
            "leaderElection.enabled", "--leader-elect" in flags, SWITCH, "Let one replica work at a time; by a Lease."
        ),
        Value(
            "logging.level",
            flags.get("--log-level", "info"),
            one_of(*get_args(LogLevel)),
            "The least that is logged.",
        ),
        Value(
            "logging.format",
            flags.get("--log-format", "json"),
            one_of(*get_args(LogFormat)),
            "For programs or people.",
        ),
    ]


def _webhooks(parts: Parts) -> list[Value]:
    ways = ["self", "cert-manager"] if parts.has_certificates else ["self"]
    what = f"Who keeps the webhooks' certificate ({' or '.join(ways)}); self is the operator."
    listed = any(m in parts.installation.manifests for m in parts.certificates)
    usual = "cert-manager" if listed else "self"
    return [Value("webhooks.certificates", usual, one_of(*ways), what)]


def _around(parts: Parts) -> list[Value]:
    values: list[Value] = []
    if port := parts.port("metrics"):
        values += [
            Value("metrics.service.enabled", False, SWITCH, "A Service before the metrics."),
            Value("metrics.service.port", port, {**COUNT, "minimum": 1, "maximum": 65535}, "Its port."),
            Value("metrics.service.annotations", {}, TEXTS, "Its annotations."),
            Value(
                "metrics.serviceMonitor.enabled",
                False,
                SWITCH,
                "A ServiceMonitor for the Prometheus operator, and that Service.",
            ),
            Value("metrics.serviceMonitor.labels", {}, TEXTS, "By which a Prometheus chooses it."),
            Value("metrics.serviceMonitor.interval", "", DURATION, "Between scrapes; Prometheus' own unless given."),
        ]
    if parts.monitors:
        listed = bool(parts.installation.of("PodMonitor", "ServiceMonitor"))
        values.append(Value("metrics.monitors.enabled", listed, SWITCH, "The monitors of config/prometheus."))
    values += [
        Value("podDisruptionBudget.enabled", False, SWITCH, "A PodDisruptionBudget."),
        Value("podDisruptionBudget.minAvailable", "", AMOUNT, "A number or a percentage of replicas."),
        Value("podDisruptionBudget.maxUnavailable", 1, AMOUNT, "Unless minAvailable is given."),
    ]
    if parts.policies:
        listed = bool(parts.installation.of("NetworkPolicy"))
        values.append(Value("networkPolicy.enabled", listed, SWITCH, "The policies of config/network-policy."))
    return values


def _definitions(parts: Parts) -> list[Value]:
    if not parts.installation.definitions:
        return []
    return [
        Value("crds.install", True, SWITCH, "Install and upgrade the CustomResourceDefinitions."),
        Value("crds.keep", True, SWITCH, "Keep them, and with them all objects, when the release is uninstalled."),
    ]


def split_image(image: str) -> tuple[str, str, str]:
    """Repository, tag and digest of an image's name; a port of a registry is no tag."""
    rest, _, digest = image.partition("@")
    head, slash, last = rest.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{head}{slash}{name}", tag, digest
