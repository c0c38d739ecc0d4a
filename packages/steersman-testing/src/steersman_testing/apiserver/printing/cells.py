"""What stands in the cells of built-in kinds where it is more than a field's value.

Source: ``pkg/printers/internalversion`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from steersman_testing.apiserver.values import JsonObject, list_at, map_at

_NODE_ROLE = "node-role.kubernetes.io/"


def shown_labels(labels: JsonObject) -> str:
    """``a=1,b=2``."""
    return ",".join(f"{k}={labels[k]}" for k in sorted(labels)) or "<none>"


def shown_selector(selector: Any) -> str:
    """A ``LabelSelector`` as ``kubectl get --selector`` takes it; empty where it selects everything, or nothing."""
    parts = [(k, f"{k}={v}") for k, v in map_at(selector, "matchLabels").items()]
    for expression in list_at(selector, "matchExpressions"):
        key, values = expression.get("key", ""), ",".join(sorted(list_at(expression, "values")))
        match expression.get("operator"):
            case "Exists":
                parts.append((key, key))
            case "DoesNotExist":
                parts.append((key, f"!{key}"))
            case other:
                parts.append((key, f"{key} {str(other).lower()} ({values})"))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def container_cells(pod_spec: JsonObject) -> list[str]:
    """Names and images of a pod's containers."""
    containers = list_at(pod_spec, "containers")
    return [",".join(c.get(field, "") for c in containers) for field in ("name", "image")]


def with_more(values: Sequence[str], most: int, separator: str = ",") -> str:
    """The first ``most`` of ``values``, and how many follow."""
    shown = separator.join(values[:most])
    return f"{shown} + {len(values) - most} more..." if len(values) > most else shown


def node_cells(node: JsonObject) -> list[str]:
    """Status, roles, addresses, operating system, kernel, container runtime."""
    status, labels = map_at(node, "status"), map_at(map_at(node, "metadata"), "labels")
    ready = {c.get("type"): c.get("status") for c in list_at(status, "conditions")}.get("Ready")
    state = "Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"
    if map_at(node, "spec").get("unschedulable"):
        state += ",SchedulingDisabled"
    roles = {k.removeprefix(_NODE_ROLE) for k in labels if k.startswith(_NODE_ROLE)} | {
        labels.get("kubernetes.io/role")
    }
    information = map_at(status, "nodeInfo")
    image, kernel, runtime = (
        information.get(n) or "<unknown>" for n in ("osImage", "kernelVersion", "containerRuntimeVersion")
    )
    if architecture := information.get("architecture"):
        kernel += f" ({architecture})"
    shown = ",".join(sorted(r for r in roles if r)) or "<none>"
    return [state, shown, _address(status, "InternalIP"), _address(status, "ExternalIP"), image, kernel, runtime]


def _address(status: JsonObject, kind: str) -> str:
    return next((a.get("address", "") for a in list_at(status, "addresses") if a.get("type") == kind), "<none>")


def service_cells(spec: JsonObject, status: JsonObject) -> list[str]:
    """Type, cluster IP, external IP, ports."""
    kind = spec.get("type", "")
    internal = next(iter(list_at(spec, "clusterIPs")), "<none>")
    ports = [_port(p) for p in list_at(spec, "ports")]
    return [kind, internal, _external(kind, spec, status), ",".join(ports) or "<none>"]


def _port(port: JsonObject) -> str:
    number, protocol, node = port.get("port", 0), port.get("protocol", ""), port.get("nodePort")
    return f"{number}:{node}/{protocol}" if node else f"{number}/{protocol}"


def _external(kind: str, spec: JsonObject, status: JsonObject) -> str:
    extra: list[str] = list_at(spec, "externalIPs")
    match kind:
        case "ClusterIP" | "NodePort":
            return ",".join(extra) or "<none>"
        case "LoadBalancer":
            return ",".join([*balancer_addresses(status), *extra]) or "<pending>"
        case "ExternalName":
            return spec.get("externalName", "")
        case _:
            return "<unknown>"


def balancer_addresses(status: JsonObject) -> list[str]:
    """Where a load balancer is reached, of a Service's or an Ingress's status."""
    ingress = list_at(map_at(status, "loadBalancer"), "ingress")
    return sorted({i.get("ip") or i.get("hostname", "") for i in ingress} - {""})


def host_cell(rules: list[JsonObject]) -> str:
    """The hosts of an Ingress's rules."""
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == 3:
            return f"{','.join(hosts)} + {len(rules) - 3} more..."
        if rule.get("host"):
            hosts.append(rule["host"])
    return ",".join(hosts) or "*"


def endpoint_cell(endpoints: JsonObject) -> str:
    """Addresses with their ports, of Endpoints."""
    found: list[str] = []
    for subset in list_at(endpoints, "subsets"):
        addresses = [a.get("ip", "") for a in list_at(subset, "addresses")]
        ports = [p.get("port", 0) for p in list_at(subset, "ports")]
        found += [f"{_bracketed(a)}:{p}" for p in ports for a in addresses] if ports else addresses
    return with_more(found, 3) or "<none>"


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def quota_cells(status: JsonObject) -> list[str]:
    """Requests and limits of a ResourceQuota: what is used of what there is."""
    hard, used = map_at(status, "hard"), map_at(status, "used")
    shown = [(name, f"{name}: {used.get(name, '0')}/{hard[name]}") for name in sorted(hard)]
    requests = [text for name, text in shown if not name.startswith("limits.")]
    limits = [text for name, text in shown if name.startswith("limits.")]
    return [", ".join(requests), ", ".join(limits)]


def subject_cells(subjects: list[JsonObject]) -> list[str]:
    """Users, groups and service accounts of a role binding."""
    named: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in subjects:
        kind, name = subject.get("kind", ""), subject.get("name", "")
        if kind == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        named.get(kind, []).append(name)
    return [", ".join(names) for names in named.values()]


def metric_cell(specs: list[JsonObject], statuses: list[JsonObject]) -> str:
    """Present and wanted values of a HorizontalPodAutoscaler's metrics."""
    shown: list[str] = []
    for position, spec in enumerate(specs):
        name = spec.get("type", "")
        place = name[:1].lower() + name[1:]
        status = statuses[position] if position < len(statuses) else {}
        target = map_at(map_at(spec, place), "target")
        current = map_at(map_at(status, place), "current")
        shown.append(_metric(name, map_at(spec, place), target, current))
    return with_more(shown, 2, ", ") or "<none>"


def _metric(name: str, spec: JsonObject, target: JsonObject, current: JsonObject) -> str:
    average = f"{current.get('averageValue', '<unknown>')}/{target.get('averageValue', '0')}"
    match name:
        case "Resource" | "ContainerResource":
            if "averageValue" in target:
                return f"{spec.get('name', '')}: {average}"
            now, wanted = current.get("averageUtilization"), target.get("averageUtilization")
            shown = "<unknown>" if now is None else f"{now}%"
            return f"{spec.get('name', '')}: {shown}/{'<auto>' if wanted is None else f'{wanted}%'}"
        case "Pods":
            return average
        case "External" | "Object":
            if "averageValue" in target:
                return f"{average} (avg)"
            return f"{current.get('value', '<unknown>')}/{target.get('value', '0')}"
        case _:
            return "<unknown type>"


def event_cells(event: JsonObject, since: Callable[[str | None], str]) -> list[Any]:
    """All columns of an Event, of either group, but its name."""
    series = map_at(event, "series")
    about = map_at(event, "involvedObject") or map_at(event, "regarding")
    source = map_at(event, "source") or map_at(event, "deprecatedSource")

    def either(name: str) -> Any:
        return event.get(name) or event.get(f"deprecated{name[0].upper()}{name[1:]}")

    first = since(either("firstTimestamp") or event.get("eventTime"))
    last = since(either("lastTimestamp")) if either("lastTimestamp") else first
    target = about.get("kind", "").lower()
    return [
        since(series.get("lastObservedTime")) if series else last,
        event.get("type", ""),
        event.get("reason", ""),
        f"{target}/{about['name']}" if about.get("name") else target,
        about.get("fieldPath", ""),
        _source(event, source),
        (event.get("message") or event.get("note") or "").strip(),
        first,
        series.get("count", 0) if series else either("count") or 1,
    ]


def _source(event: JsonObject, source: JsonObject) -> str:
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    instance = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component
