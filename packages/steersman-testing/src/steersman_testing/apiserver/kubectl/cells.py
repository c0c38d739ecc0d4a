"""Cells of built-in kinds, except plain values of fields.

Source: ``pkg/printers/internalversion`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from steersman_testing.apiserver.values import JsonObject, get_array, get_object

_NODE_ROLE = "node-role.kubernetes.io/"


def format_labels(labels: JsonObject) -> str:
    """Format labels as ``a=1,b=2``."""
    return ",".join(f"{k}={labels[k]}" for k in sorted(labels)) or "<none>"


def format_selector(selector: Any) -> str:
    """Format a ``LabelSelector`` as for ``kubectl get --selector``."""
    parts = [(k, f"{k}={v}") for k, v in get_object(selector, "matchLabels").items()]
    for expression in get_array(selector, "matchExpressions"):
        key, values = expression.get("key", ""), ",".join(sorted(get_array(expression, "values")))
        match expression.get("operator"):
            case "Exists":
                parts.append((key, key))
            case "DoesNotExist":
                parts.append((key, f"!{key}"))
            case other:
                parts.append((key, f"{key} {str(other).lower()} ({values})"))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def container_cells(pod_spec: JsonObject) -> list[str]:
    """Return the cells for names and images of containers."""
    containers = get_array(pod_spec, "containers")
    return [",".join(c.get(field, "") for c in containers) for field in ("name", "image")]


def truncated_list(values: Sequence[str], limit: int, separator: str = ",") -> str:
    """Join the first ``limit`` values and count the others."""
    formatted = separator.join(values[:limit])
    return f"{formatted} + {len(values) - limit} more..." if len(values) > limit else formatted


def node_cells(node: JsonObject) -> list[str]:
    """Return the cells of a node.

    They are status, roles, addresses, OS, kernel and container runtime.
    """
    status, labels = get_object(node, "status"), get_object(get_object(node, "metadata"), "labels")
    ready = {c.get("type"): c.get("status") for c in get_array(status, "conditions")}.get("Ready")
    state = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    if get_object(node, "spec").get("unschedulable"):
        state += ",SchedulingDisabled"
    roles = {k.removeprefix(_NODE_ROLE) for k in labels if k.startswith(_NODE_ROLE)} | {
        labels.get("kubernetes.io/role")
    }
    node_info = get_object(status, "nodeInfo")
    image, kernel, runtime = (
        node_info.get(n) or "<unknown>" for n in ("osImage", "kernelVersion", "containerRuntimeVersion")
    )
    if architecture := node_info.get("architecture"):
        kernel += f" ({architecture})"
    formatted = ",".join(sorted(r for r in roles if r)) or "<none>"
    return [state, formatted, _address(status, "InternalIP"), _address(status, "ExternalIP"), image, kernel, runtime]


def _address(status: JsonObject, kind: str) -> str:
    return next((a.get("address", "") for a in get_array(status, "addresses") if a.get("type") == kind), "<none>")


def service_cells(spec: JsonObject, status: JsonObject) -> list[str]:
    """Return the cells for type, cluster IP, external IP and ports."""
    kind = spec.get("type", "")
    internal = next(iter(get_array(spec, "clusterIPs")), "<none>")
    ports = [_port(p) for p in get_array(spec, "ports")]
    return [kind, internal, _external_ip(kind, spec, status), ",".join(ports) or "<none>"]


def _port(port: JsonObject) -> str:
    number, protocol, node = port.get("port", 0), port.get("protocol", ""), port.get("nodePort")
    return f"{number}:{node}/{protocol}" if node else f"{number}/{protocol}"


def _external_ip(kind: str, spec: JsonObject, status: JsonObject) -> str:
    extra: list[str] = get_array(spec, "externalIPs")
    match kind:
        case "ClusterIP" | "NodePort":
            return ",".join(extra) or "<none>"
        case "LoadBalancer":
            return ",".join([*load_balancer_addresses(status), *extra]) or "<pending>"
        case "ExternalName":
            return spec.get("externalName", "")
        case _:
            return "<unknown>"


def load_balancer_addresses(status: JsonObject) -> list[str]:
    """Return the load balancer addresses of a Service or an Ingress."""
    ingress = get_array(get_object(status, "loadBalancer"), "ingress")
    return sorted({i.get("ip") or i.get("hostname", "") for i in ingress} - {""})


def host_cell(rules: list[JsonObject]) -> str:
    """Return the cell for the hosts of an Ingress."""
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == 3:
            return f"{','.join(hosts)} + {len(rules) - 3} more..."
        if rule.get("host"):
            hosts.append(rule["host"])
    return ",".join(hosts) or "*"


def endpoint_cell(endpoints: JsonObject) -> str:
    """Return the cell for addresses and ports of Endpoints."""
    found: list[str] = []
    for subset in get_array(endpoints, "subsets"):
        addresses = [a.get("ip", "") for a in get_array(subset, "addresses")]
        ports = [p.get("port", 0) for p in get_array(subset, "ports")]
        found += [f"{_bracket_ipv6(a)}:{p}" for p in ports for a in addresses] if ports else addresses
    return truncated_list(found, 3) or "<none>"


def _bracket_ipv6(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def quota_cells(status: JsonObject) -> list[str]:
    """Return the cells for requests and limits of a ResourceQuota."""
    hard, used = get_object(status, "hard"), get_object(status, "used")
    formatted = [(name, f"{name}: {used.get(name, '0')}/{hard[name]}") for name in sorted(hard)]
    requests = [text for name, text in formatted if not name.startswith("limits.")]
    limits = [text for name, text in formatted if name.startswith("limits.")]
    return [", ".join(requests), ", ".join(limits)]


def subject_cells(subjects: list[JsonObject]) -> list[str]:
    """Return the cells for users, groups and service accounts of a binding."""
    named: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in subjects:
        kind, name = subject.get("kind", ""), subject.get("name", "")
        if kind == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        named.get(kind, []).append(name)
    return [", ".join(names) for names in named.values()]


def metric_cell(specs: list[JsonObject], statuses: list[JsonObject]) -> str:
    """Return the cell for current and target values of metrics."""
    formatted: list[str] = []
    for position, spec in enumerate(specs):
        name = spec.get("type", "")
        source_field = name[:1].lower() + name[1:]
        status = statuses[position] if position < len(statuses) else {}
        target = get_object(get_object(spec, source_field), "target")
        current = get_object(get_object(status, source_field), "current")
        formatted.append(_metric(name, get_object(spec, source_field), target, current))
    return truncated_list(formatted, 2, ", ") or "<none>"


def _metric(name: str, spec: JsonObject, target: JsonObject, current: JsonObject) -> str:
    average = f"{current.get('averageValue', '<unknown>')}/{target.get('averageValue', '0')}"
    match name:
        case "Resource" | "ContainerResource":
            if "averageValue" in target:
                return f"{spec.get('name', '')}: {average}"
            now, wanted = current.get("averageUtilization"), target.get("averageUtilization")
            formatted = "<unknown>" if now is None else f"{now}%"
            return f"{spec.get('name', '')}: {formatted}/{'<auto>' if wanted is None else f'{wanted}%'}"
        case "Pods":
            return average
        case "External" | "Object":
            if "averageValue" in target:
                return f"{average} (avg)"
            return f"{current.get('value', '<unknown>')}/{target.get('value', '0')}"
        case _:
            return "<unknown type>"


def event_cells(event: JsonObject, format_age: Callable[[str | None], str]) -> list[Any]:
    """Return all cells of an Event without its name."""
    series = get_object(event, "series")
    involved_object = get_object(event, "involvedObject") or get_object(event, "regarding")
    source = get_object(event, "source") or get_object(event, "deprecatedSource")

    def legacy_or_current(name: str) -> Any:
        return event.get(name) or event.get(f"deprecated{name[0].upper()}{name[1:]}")

    first = format_age(legacy_or_current("firstTimestamp") or event.get("eventTime"))
    last = format_age(legacy_or_current("lastTimestamp")) if legacy_or_current("lastTimestamp") else first
    target = involved_object.get("kind", "").lower()
    return [
        format_age(series.get("lastObservedTime")) if series else last,
        event.get("type", ""),
        event.get("reason", ""),
        f"{target}/{involved_object['name']}" if involved_object.get("name") else target,
        involved_object.get("fieldPath", ""),
        _source(event, source),
        (event.get("message") or event.get("note") or "").strip(),
        first,
        series.get("count", 0) if series else legacy_or_current("count") or 1,
    ]


def _source(event: JsonObject, source: JsonObject) -> str:
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component
