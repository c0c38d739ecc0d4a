"""Fields of a cluster's spec, of every engine: two values, and what is seen of each on the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from devcluster.target import Target
from steersman_databases.features.certificates.x509 import sans

Object = Mapping[str, Any]
OTHER_NAMESPACE = "e2e-cluster-fields-elsewhere"
"""Another namespace."""


class ClusterObjects:
    """What there is of a cluster at one moment, each kind looked at once."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self.cluster = cluster
        self._services: dict[str, Object] = {}

    @cached_property
    def template(self) -> Object:
        """Of the primary's pods."""
        return self.cluster.namespace_client.get("statefulset", self.cluster.primary)["spec"]["template"]

    @property
    def pod(self) -> Object:
        return self.template["spec"]

    @property
    def server(self) -> Object:
        return self.pod["containers"][0]

    def service(self, name: str) -> Object:
        if name not in self._services:
            self._services[name] = self.cluster.namespace_client.get("service", f"orders-{name}")
        return self._services[name]

    @cached_property
    def budget(self) -> Object:
        return self.cluster.namespace_client.get("poddisruptionbudget", "orders")

    @cached_property
    def poolers(self) -> Mapping[str, Object]:
        found = {d["metadata"]["name"]: d for d in self.cluster.namespace_client.all("deployments")}
        return {name.removeprefix("orders-pooler-"): d for name, d in found.items()}

    def pvc(self, volume: str) -> Object:
        return self.cluster.namespace_client.get("pvc", f"{volume}-{self.cluster.primary}")["spec"]


@dataclass(frozen=True)
class FieldCase:
    """A field's first value, its second, and what is seen of each and of none: whatever ``look`` gives for it.

    ``look`` at None: nothing but a failure or the end would show it. ``first`` and ``second`` at None: not set then.
    ``rest`` is what is left where the field is no more: of a list, elements without it.
    """

    first: Any
    second: Any
    observe: Callable[[ClusterObjects], Any] | None = None
    expected_values: Sequence[Any] | None = None
    default: Any = None

    def value_at(self, stage: int) -> Any:
        return (self.first, self.second, self.default)[stage]

    def expected(self, stage: int) -> Any:
        return (
            self.expected_values[stage]
            if self.expected_values is not None
            else (self.first, self.second, None)[stage]
        )


@dataclass(frozen=True)
class FieldCases:
    """Of one engine's kind.

    Attributes:
        cases: by the fields' paths.
        final: what is given once, for good, and its values.
        other_image: the same image under another name.
        sql: what the initial configuration runs, from a Secret and a ConfigMap.
        given: a statement in the first database about what was given, and its answer.
    """

    cases: Mapping[str, FieldCase]
    final: Mapping[str, Any]
    other_image: str
    sql: tuple[str, str]
    bootstrap_query: tuple[str, str]


def fields(schema: Object, path: str = "", *, lists: bool = False) -> Iterator[str]:
    """The fields of a schema, by their paths. What is Kubernetes' own is one field.

    Args:
        lists: tells the fields of a list's elements, as in ``roles[].name``, too.
    """
    for name, each in schema["properties"].items():
        where = f"{path}.{name}".removeprefix(".")
        if "properties" in each and not where.startswith("affinity."):
            yield from fields(each, where, lists=lists)
        elif lists and "properties" in each.get("items", {}):
            yield from fields(each["items"], f"{where}[]", lists=lists)
        else:
            yield where


def known_fields(target: Target, kind: str, *, lists: bool = False) -> set[str]:
    """The paths of all fields of a kind's spec that the API server knows."""
    crd = target.get("crd", f"{kind.lower()}s.databases.steersman.dev")
    assert crd is not None
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return set(fields(schema, lists=lists))


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """A spec of fields by their paths. That of an element, as in ``roles[].name``, has the elements that show it."""
    spec: dict[str, Any] = {}
    for path, value in values.items():
        whole, of_elements, _ = path.partition("[]")
        *parents, name = whole.split(".")
        inner = spec
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = [*inner.get(name, ()), *value] if of_elements else value
    return spec


def stage(cases: Mapping[str, FieldCase], final: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The spec of a stage: all first values, all second ones, none."""
    chosen = {path: value for path, case in cases.items() if (value := case.value_at(number)) is not None}
    return nested({**final, **chosen})


def wait_for_stage(orders: ClusterUnderTest, cases: Mapping[str, FieldCase], number: int, seconds: float) -> None:
    """Waits until all fields are seen as a stage has them, at once: what is not as it should be is named."""
    wrong: dict[str, str] = {}

    def look() -> bool:
        found = ClusterObjects(orders)
        wrong.clear()
        for path, case in cases.items():
            if case.observe is None:
                continue
            if (seen := case.observe(found)) != case.expected(number):
                wrong[path] = f"{seen!r} in place of {case.expected(number)!r}"
        return not wrong

    try:
        orders.until("all is as declared", look, seconds)
    except Exception as error:
        error.add_note(json.dumps(wrong, indent=1))
        raise


def of_service(name: str) -> dict[str, FieldCase]:
    """The fields of one Service. A load balancer becomes a port of the nodes, then an address inside."""
    base = {"rw": 30510, "ro": 30520, "r": 30530}[name]

    def spec(field: str) -> Callable[[ClusterObjects], Any]:
        return lambda found: found.service(name).get("spec", {}).get(field)

    def metadata(field: str, key: str) -> Callable[[ClusterObjects], Any]:
        return lambda found: found.service(name)["metadata"].get(field, {}).get(key)

    def port(found: ClusterObjects) -> Any:
        return found.service(name)["spec"]["ports"][0].get("nodePort")

    return {
        # Off would hide all other fields: `test_a_service_that_is_not_wanted` has it.
        "enabled": FieldCase(True, None, lambda found: bool(found.service(name)), (True, True, True)),
        "type": FieldCase("LoadBalancer", "NodePort", spec("type"), ("LoadBalancer", "NodePort", "ClusterIP")),
        "labels": FieldCase({"team": "one"}, {"team": "two"}, metadata("labels", "team"), ("one", "two", None)),
        "annotations": FieldCase(
            {"who": "one"}, {"who": "two"}, metadata("annotations", "who"), ("one", "two", None)
        ),
        "nodePort": FieldCase(base, base + 1, port, (base, base + 1, None)),
        "loadBalancerClass": FieldCase("example.com/a", None, spec("loadBalancerClass")),
        "loadBalancerSourceRanges": FieldCase(["10.0.0.0/8"], None, spec("loadBalancerSourceRanges")),
        "externalTrafficPolicy": FieldCase(
            "Local", "Cluster", spec("externalTrafficPolicy"), ("Local", "Cluster", None)
        ),
        "ipFamilyPolicy": FieldCase(
            "PreferDualStack",
            "SingleStack",
            spec("ipFamilyPolicy"),
            ("PreferDualStack", "SingleStack", "SingleStack"),
        ),
        "ipFamilies": FieldCase(["IPv4"], None, spec("ipFamilies"), (["IPv4"], ["IPv4"], ["IPv4"])),
    }


def on_pod(field: str) -> Callable[[ClusterObjects], Any]:
    return lambda found: found.pod.get(field)


def node_affinity(weight: int) -> Object:
    match = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": match}]}


def pod_affinity(weight: int) -> Object:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "other"}}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}


def weight(kind: str) -> Callable[[ClusterObjects], Any]:
    def look(found: ClusterObjects) -> Any:
        terms = found.pod.get("affinity", {}).get(kind, {}).get("preferredDuringSchedulingIgnoredDuringExecution", [])
        return [term["weight"] for term in terms]

    return look


def resource(where: str, kind: str, name: str) -> Callable[[ClusterObjects], Any]:
    def look(found: ClusterObjects) -> Any:
        if where == "server":
            return found.server["resources"].get(kind, {}).get(name)
        spec = found.poolers.get("rw", {}).get("spec", {}).get("template", {}).get("spec", {})
        return next((c["resources"].get(kind, {}).get(name) for c in spec.get("containers", ())), None)

    return look


def topology_spread(skew: int) -> Sequence[Object]:
    return [{"maxSkew": skew, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]


def remote_database(found: ClusterObjects) -> bool:
    """Whether a database of another namespace is let in."""
    elsewhere = NamespaceClient(found.cluster.namespace_client.target, OTHER_NAMESPACE)
    elsewhere.until("it is judged", lambda: elsewhere.condition("database", "guest").get("reason"), 60)
    return elsewhere.condition("database", "guest")["reason"] != "ReferenceNotPermitted"


def _certificate(found: ClusterObjects) -> str:
    secrets = {
        name: found.cluster.namespace_client.secret(name).get("tls.crt") for name in ("given-one", "given-two")
    }
    served = found.cluster.namespace_client.secret("orders-tls")["tls.crt"]
    return next((name for name, given in secrets.items() if given == served), "own")


def _additional_names(found: ClusterObjects) -> list[str]:
    """Names of no Service's that are in the certificate that is shown."""
    served = found.cluster.namespace_client.secret("orders-tls")["tls.crt"]
    return sorted(name for name in sans(served) if name.endswith(".example.com"))


def window(day: str) -> Object:
    """Return a maintenance window at noon."""
    return {"days": [day], "start": "12:00", "duration": "1h"}


def next_window_day(found: ClusterObjects) -> str | None:
    """Return the day of the week of the next maintenance window."""
    start = found.cluster.status.get("nextWindow")
    return None if start is None else f"{datetime.fromisoformat(start):%a}"


def image(ours: str, other: str) -> FieldCase:
    """What runs stays where nothing is said: the operator's is for a new instance only."""
    return FieldCase(ours, other, lambda found: found.server["image"], (ours, other, other))


def memory(first: str, second: str, default: str) -> FieldCase:
    """The limit of a server."""
    look = resource("server", "limits", "memory")
    return FieldCase({"memory": first}, {"memory": second}, look, (first, second, default))


def cpu(memory: str) -> FieldCase:
    """What a server asks for; ``memory`` is the rest of it."""
    look = resource("server", "requests", "cpu")
    return FieldCase({"cpu": "50m", "memory": memory}, {"cpu": "60m", "memory": memory}, look, ("50m", "60m", "100m"))


def volume(name: str, first: str, second: str) -> FieldCase:
    """The size of a volume that grows."""
    return FieldCase(first, second, lambda f: f.pvc(name)["resources"]["requests"]["storage"], (first, second, "1Gi"))


def autogrow(volume: str) -> dict[str, FieldCase]:
    """The fields of automatic growth, which other tests show."""
    fields = ("mode", "maxSize", "atPercent", "forecast", "minStep", "cooldown")
    return {f"{volume}.autogrow.{field}": FieldCase(None, None) for field in fields}


COMMON: Mapping[str, FieldCase] = {
    "imagePullPolicy": FieldCase(
        "Never", "IfNotPresent", lambda f: f.server["imagePullPolicy"], ("Never", "IfNotPresent", "IfNotPresent")
    ),
    "imagePullSecrets": FieldCase([{"name": "one"}], [{"name": "two"}], on_pod("imagePullSecrets")),
    "instances": FieldCase(2, 3, lambda found: found.cluster.status["readyInstances"], (2, 3, 3)),
    # Claims of devices: refused by `test_devices_that_no_pod_has`.
    "resources.claims": FieldCase(None, None),
    "affinity.nodeAffinity": FieldCase(
        node_affinity(11), node_affinity(12), weight("nodeAffinity"), ([11], [12], [])
    ),
    "affinity.podAffinity": FieldCase(pod_affinity(21), pod_affinity(22), weight("podAffinity"), ([21], [22], [])),
    # Without one of their own instances are kept apart.
    "affinity.podAntiAffinity": FieldCase(
        pod_affinity(31), pod_affinity(32), weight("podAntiAffinity"), ([31], [32], [100])
    ),
    "nodeSelector": FieldCase({"kubernetes.io/os": "linux"}, {"kubernetes.io/arch": "amd64"}, on_pod("nodeSelector")),
    "tolerations": FieldCase(
        [{"key": "one", "operator": "Exists"}], [{"key": "two", "operator": "Exists"}], on_pod("tolerations")
    ),
    "topologySpreadConstraints": FieldCase(
        topology_spread(1),
        topology_spread(2),
        lambda found: [c["maxSkew"] for c in found.pod.get("topologySpreadConstraints", ())],
        ([1], [2], []),
    ),
    "priorityClassName": FieldCase("e2e-fields-one", "e2e-fields-two", on_pod("priorityClassName")),
    "podMetadata.labels": FieldCase(
        {"team": "one"}, {"team": "two"}, lambda f: f.template["metadata"]["labels"].get("team"), ("one", "two", None)
    ),
    "podMetadata.annotations": FieldCase(
        {"who": "one"},
        {"who": "two"},
        lambda found: found.template["metadata"]["annotations"].get("who"),
        ("one", "two", None),
    ),
    "podDisruptionBudget.enabled": FieldCase(True, False, lambda found: bool(found.budget), (True, False, True)),
    "podDisruptionBudget.maxUnavailable": FieldCase(
        2, None, lambda found: found.budget.get("spec", {}).get("maxUnavailable"), (2, None, 1)
    ),
    **{f"services.{name}.{field}": case for name in ("rw", "ro", "r") for field, case in of_service(name).items()},
    "services.additional": FieldCase(
        [{"name": "extra-one", "role": "rw"}],
        [{"name": "extra-two", "role": "ro"}],
        lambda f: [
            s["metadata"]["name"]
            for s in f.cluster.namespace_client.all("services")
            if "extra" in s["metadata"]["name"]
        ],
        (["extra-one"], ["extra-two"], []),
    ),
    "tls.serverSecret.name": FieldCase("given-one", "given-two", _certificate, ("given-one", "given-two", "own")),
    # Given certificates have the names that they must, and the own one what is left.
    "tls.additionalNames": FieldCase(
        ["one.example.com"],
        ["two.example.com"],
        _additional_names,
        (["one.example.com"], ["two.example.com"], ["*.example.com"]),
        ["*.example.com"],
    ),
    "allowedNamespaces": FieldCase([OTHER_NAMESPACE], ["nobody"], remote_database, (True, False, False)),
    # The devcluster has no CRD of PodMonitor: unit tests show these fields.
    "monitoring.podMonitor.enabled": FieldCase(None, None),
    "monitoring.podMonitor.labels": FieldCase(None, None),
    "monitoring.podMonitor.interval": FieldCase(None, None),
    "monitoring.disabledAlerts": FieldCase(None, None),
    "monitoring.queries": FieldCase(None, None),  # features/test_monitoring.py
    "monitoring.slowStatementThreshold": FieldCase("1s", "2s"),  # features/test_slow_statements.py
    "networkPolicy": FieldCase(
        "Managed",
        "None",
        lambda f: bool(f.cluster.namespace_client.get("networkpolicy", "orders")),
        (True, False, True),
    ),
    "maintenance.windows": FieldCase([window("Sat")], [window("Sun")], next_window_day, ("Sat", "Sun", None)),
    "maintenance.timeZone": FieldCase("Europe/Berlin", "UTC"),  # features/maintenance/test_windows.py
    "maintenance.ring": FieldCase("Early", "Late"),  # features/maintenance/test_rings.py
    "maintenance.minorUpgrades": FieldCase("Automatic", "OnRequest"),  # an image is given
    # A full volume shows them: test_autogrow.py.
    **autogrow("storage"),
    "tuning.mode": FieldCase(None, None),  # features/tuning/test_clusters.py
    # Recorded use of a week shows them: features/test_vertical_scaling.py and unit tests.
    **{
        f"verticalScaling.{field}": FieldCase(None, None)
        for field in ("mode", "minAllowed.cpu", "minAllowed.memory", "maxAllowed.cpu", "maxAllowed.memory")
    },
    "healing.crashLoops.mode": FieldCase(None, None),  # features/test_crash_loops.py
    "hibernated": FieldCase(False, False),  # test_plugin.py
    "replaceFailedInstances": FieldCase("OnRequest", "Automatic"),  # test_failed_replicas.py
    "deletionPolicy": FieldCase("Delete", "Retain"),  # test_cluster_repair.py
}
COMMON_FINAL: Mapping[str, Any] = {
    "bootstrap.initdb.database": "shop",
    "bootstrap.initdb.owner": "keeper",
    "bootstrap.initdb.secret.name": "owner",
    "bootstrap.initdb.postInitApplicationSQLRefs.secretRefs": [{"name": "sql", "key": "a"}],
    "bootstrap.initdb.postInitApplicationSQLRefs.configMapRefs": [{"name": "sql", "key": "b"}],
    "storage.storageClass": "limited",
}
"""What is given once, for good, of every engine."""
