"""Every field of a cluster's spec: two values, and what is seen of each on the cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cluster_under_test import ClusterUnderTest, Place
from devcluster.images import POSTGRESQL

Object = Mapping[str, Any]
ELSEWHERE = "e2e-cluster-fields-elsewhere"
"""Another namespace."""
OTHER_IMAGE = "steersman.dev/postgresql:17-other"
"""The same image under another name."""


class Found:
    """What there is of a cluster at one moment, each kind looked at once."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self.cluster = cluster
        self._services: dict[str, Object] = {}

    @cached_property
    def template(self) -> Object:
        """Of the primary's pods."""
        return self.cluster.place.get("statefulset", self.cluster.primary)["spec"]["template"]

    @property
    def pod(self) -> Object:
        return self.template["spec"]

    @property
    def server(self) -> Object:
        return self.pod["containers"][0]

    @cached_property
    def patroni(self) -> Object:
        """The members' shared configuration."""
        store = self.cluster.place.get("configmap", "orders-config")
        return json.loads(store["metadata"]["annotations"]["config"])

    def service(self, name: str) -> Object:
        if name not in self._services:
            self._services[name] = self.cluster.place.get("service", f"orders-{name}")
        return self._services[name]

    @cached_property
    def budget(self) -> Object:
        return self.cluster.place.get("poddisruptionbudget", "orders")

    @cached_property
    def poolers(self) -> Mapping[str, Object]:
        found = {d["metadata"]["name"]: d for d in self.cluster.place.all("deployments")}
        return {name.removeprefix("orders-pooler-"): d for name, d in found.items()}

    def pooling(self, key: str) -> str | None:
        """A setting of PgBouncer."""
        if "rw" not in self.poolers:
            return None
        files = [m for m in self.cluster.place.all("configmaps") if "pooler" in m["metadata"]["name"]]
        lines = [line for m in files for text in m["data"].values() for line in text.splitlines()]
        return next((line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == key), None)

    def claim(self, volume: str) -> Object:
        return self.cluster.place.get("pvc", f"{volume}-{self.cluster.primary}")["spec"]


@dataclass(frozen=True)
class Case:
    """A field's first value, its second, and what is seen of each and of none: whatever ``look`` gives for it.

    ``look`` at None: nothing but a failure or the end would show it. ``first`` and ``second`` at None: not set then.
    """

    first: Any
    second: Any
    look: Callable[[Found], Any] | None = None
    seen: Sequence[Any] | None = None

    def expected(self, stage: int) -> Any:
        return self.seen[stage] if self.seen is not None else (self.first, self.second, None)[stage]


def of_service(name: str, first: Case | None = None) -> dict[str, Case]:
    """The fields of one Service. A load balancer becomes a port of the nodes, then an address inside."""
    base = {"rw": 30510, "ro": 30520, "r": 30530}[name]

    def spec(field: str) -> Callable[[Found], Any]:
        return lambda found: found.service(name).get("spec", {}).get(field)

    def metadata(field: str, key: str) -> Callable[[Found], Any]:
        return lambda found: found.service(name)["metadata"].get(field, {}).get(key)

    def port(found: Found) -> Any:
        return found.service(name)["spec"]["ports"][0].get("nodePort")

    return {
        # Off would hide all other fields: `test_a_service_that_is_not_wanted` has it.
        "enabled": Case(True, None, lambda found: bool(found.service(name)), (True, True, True)),
        "type": Case("LoadBalancer", "NodePort", spec("type"), ("LoadBalancer", "NodePort", "ClusterIP")),
        "labels": Case({"team": "one"}, {"team": "two"}, metadata("labels", "team"), ("one", "two", None)),
        "annotations": Case({"who": "one"}, {"who": "two"}, metadata("annotations", "who"), ("one", "two", None)),
        "nodePort": Case(base, base + 1, port, (base, base + 1, None)),
        "loadBalancerClass": Case("example.com/a", None, spec("loadBalancerClass")),
        "loadBalancerSourceRanges": Case(["10.0.0.0/8"], None, spec("loadBalancerSourceRanges")),
        "externalTrafficPolicy": Case("Local", "Cluster", spec("externalTrafficPolicy"), ("Local", "Cluster", None)),
        "ipFamilyPolicy": Case(
            "PreferDualStack",
            "SingleStack",
            spec("ipFamilyPolicy"),
            ("PreferDualStack", "SingleStack", "SingleStack"),
        ),
        "ipFamilies": Case(["IPv4"], None, spec("ipFamilies"), (["IPv4"], ["IPv4"], ["IPv4"])),
    }


def shown(parameter: str) -> Callable[[Found], Any]:
    return lambda found: found.cluster.sql(f"SHOW {parameter}")


def on_pod(field: str) -> Callable[[Found], Any]:
    return lambda found: found.pod.get(field)


def node_affinity(weight: int) -> Object:
    match = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": match}]}


def pod_affinity(weight: int) -> Object:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "other"}}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": term}]}


def weight(kind: str) -> Callable[[Found], Any]:
    def look(found: Found) -> Any:
        terms = found.pod.get("affinity", {}).get(kind, {}).get("preferredDuringSchedulingIgnoredDuringExecution", [])
        return [term["weight"] for term in terms]

    return look


def resource(where: str, kind: str, name: str) -> Callable[[Found], Any]:
    def look(found: Found) -> Any:
        if where == "server":
            return found.server["resources"].get(kind, {}).get(name)
        spec = found.poolers.get("rw", {}).get("spec", {}).get("template", {}).get("spec", {})
        return next((c["resources"].get(kind, {}).get(name) for c in spec.get("containers", ())), None)

    return look


def spread(skew: int) -> Sequence[Object]:
    return [{"maxSkew": skew, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}]


def remote_database(found: Found) -> bool:
    """Whether a database of another namespace is let in."""
    elsewhere = Place(found.cluster.place.target, ELSEWHERE)
    elsewhere.until("it is judged", lambda: elsewhere.condition("database", "guest").get("reason"), 60)
    return elsewhere.condition("database", "guest")["reason"] != "ReferenceNotPermitted"


def _lines(found: Found) -> list[str]:
    rules = found.cluster.sql("SELECT array_to_string(user_name, ',') FROM pg_hba_file_rules")
    return [name for name in ("guest_one", "guest_two") if name in rules.split()]


def _clear_text(found: Found) -> bool:
    rules = "SELECT count(*) > 0 FROM pg_hba_file_rules WHERE type = 'host' AND auth_method <> 'reject'"
    return found.cluster.sql(rules) == "t"


def _certificate(found: Found) -> str:
    secrets = {name: found.cluster.place.secret(name).get("tls.crt") for name in ("given-one", "given-two")}
    served = found.cluster.place.secret("orders-tls")["tls.crt"]
    return next((name for name, given in secrets.items() if given == served), "own")


CASES: dict[str, Case] = {
    "version": Case("17", None, lambda found: found.cluster.sql("SHOW server_version_num")[:2], ("17", "17", "17")),
    "image": Case(
        POSTGRESQL.reference,
        OTHER_IMAGE,
        lambda found: found.server["image"],
        # What runs stays where nothing is said: it is the operator's for a new instance only.
        (POSTGRESQL.reference, OTHER_IMAGE, OTHER_IMAGE),
    ),
    "upgradeImage": Case("example.com/upgrade:one", "example.com/upgrade:two"),  # controllers/test_upgrades.py
    "imagePullPolicy": Case(
        "Never", "IfNotPresent", lambda f: f.server["imagePullPolicy"], ("Never", "IfNotPresent", "IfNotPresent")
    ),
    "imagePullSecrets": Case([{"name": "one"}], [{"name": "two"}], on_pod("imagePullSecrets")),
    "instances": Case(2, 3, lambda found: found.cluster.status["readyInstances"], (2, 3, 3)),
    "postgresql.parameters": Case({"work_mem": "5MB"}, {"work_mem": "6MB"}, shown("work_mem"), ("5MB", "6MB", "4MB")),
    "postgresql.pgHba": Case(
        ["hostssl all guest_one all scram-sha-256"],
        ["hostssl all guest_two all scram-sha-256"],
        _lines,
        (["guest_one"], ["guest_two"], []),
    ),
    "postgresql.sharedPreloadLibraries": Case(
        ["pg_stat_statements"],
        ["auto_explain", "pg_stat_statements"],
        shown("shared_preload_libraries"),
        ("pg_stat_statements", "auto_explain,pg_stat_statements", ""),
    ),
    "postgresql.synchronous.mode": Case(
        "Priority", "Off", lambda found: found.patroni["synchronous_mode"], (True, False, "quorum")
    ),
    "postgresql.synchronous.standbys": Case(1, 2, lambda found: found.patroni["synchronous_node_count"], (1, 2, 1)),
    "postgresql.synchronous.required": Case(
        True, False, lambda found: found.patroni["synchronous_mode_strict"], (True, False, False)
    ),
    "storage.size": Case(
        "400Mi", "450Mi", lambda f: f.claim("data")["resources"]["requests"]["storage"], ("400Mi", "450Mi", "1Gi")
    ),
    "walStorage.size": Case(
        "300Mi", "350Mi", lambda f: f.claim("wal")["resources"]["requests"]["storage"], ("300Mi", "350Mi", "1Gi")
    ),
    # Claims of devices: refused below.
    "resources.claims": Case(None, None),
    "resources.limits": Case(
        {"memory": "512Mi"}, {"memory": "544Mi"}, resource("server", "limits", "memory"), ("512Mi", "544Mi", "768Mi")
    ),
    "resources.requests": Case(
        {"cpu": "50m", "memory": "96Mi"},
        {"cpu": "60m", "memory": "96Mi"},
        resource("server", "requests", "cpu"),
        ("50m", "60m", "100m"),
    ),
    "shmSize": Case(
        "64Mi",
        "96Mi",
        lambda found: next(v["emptyDir"]["sizeLimit"] for v in found.pod["volumes"] if v["name"] == "shm"),
        ("64Mi", "96Mi", "256Mi"),
    ),
    "affinity.nodeAffinity": Case(node_affinity(11), node_affinity(12), weight("nodeAffinity"), ([11], [12], [])),
    "affinity.podAffinity": Case(pod_affinity(21), pod_affinity(22), weight("podAffinity"), ([21], [22], [])),
    # Without affinity instances are kept apart.
    "affinity.podAntiAffinity": Case(
        pod_affinity(31), pod_affinity(32), weight("podAntiAffinity"), ([31], [32], [100])
    ),
    "nodeSelector": Case({"kubernetes.io/os": "linux"}, {"kubernetes.io/arch": "amd64"}, on_pod("nodeSelector")),
    "tolerations": Case(
        [{"key": "one", "operator": "Exists"}], [{"key": "two", "operator": "Exists"}], on_pod("tolerations")
    ),
    "topologySpreadConstraints": Case(
        spread(1),
        spread(2),
        lambda found: [c["maxSkew"] for c in found.pod.get("topologySpreadConstraints", ())],
        ([1], [2], []),
    ),
    "priorityClassName": Case("e2e-fields-one", "e2e-fields-two", on_pod("priorityClassName")),
    "podMetadata.labels": Case(
        {"team": "one"}, {"team": "two"}, lambda f: f.template["metadata"]["labels"].get("team"), ("one", "two", None)
    ),
    "podMetadata.annotations": Case(
        {"who": "one"},
        {"who": "two"},
        lambda found: found.template["metadata"]["annotations"].get("who"),
        ("one", "two", None),
    ),
    "podDisruptionBudget.enabled": Case(True, False, lambda found: bool(found.budget), (True, False, True)),
    "podDisruptionBudget.maxUnavailable": Case(
        2, None, lambda found: found.budget.get("spec", {}).get("maxUnavailable"), (2, None, 1)
    ),
    **{f"services.{name}.{field}": case for name in ("rw", "ro", "r") for field, case in of_service(name).items()},
    "services.additional": Case(
        [{"name": "extra-one", "role": "rw"}],
        [{"name": "extra-two", "role": "ro"}],
        lambda f: [
            s["metadata"]["name"] for s in f.cluster.place.all("services") if "extra" in s["metadata"]["name"]
        ],
        (["extra-one"], ["extra-two"], []),
    ),
    "tls.required": Case(True, False, _clear_text, (False, True, False)),
    "tls.serverSecret.name": Case("given-one", "given-two", _certificate, ("given-one", "given-two", "own")),
    "pooler.replicas": Case(1, 2, lambda f: f.poolers.get("rw", {}).get("spec", {}).get("replicas")),
    "pooler.mode": Case("session", "transaction", lambda found: found.pooling("pool_mode")),
    "pooler.readOnly": Case(True, False, lambda found: "ro" in found.poolers, (True, False, False)),
    "pooler.parameters": Case(
        {"default_pool_size": "7"},
        {"default_pool_size": "8"},
        lambda f: f.pooling("default_pool_size"),
        ("7", "8", None),
    ),
    "pooler.resources.claims": Case(None, None),
    "pooler.resources.limits": Case(
        {"memory": "64Mi"}, {"memory": "80Mi"}, resource("pooler", "limits", "memory"), ("64Mi", "80Mi", None)
    ),
    "pooler.resources.requests": Case(
        {"cpu": "10m"}, {"cpu": "11m"}, resource("pooler", "requests", "cpu"), ("10m", "11m", None)
    ),
    "allowedNamespaces": Case([ELSEWHERE], ["nobody"], remote_database, (True, False, False)),
    "networkPolicy": Case(
        "Managed", "None", lambda f: bool(f.cluster.place.get("networkpolicy", "orders")), (True, False, True)
    ),
    "minorUpgrades": Case("Automatic", "OnRequest"),  # an image is given
    "hibernated": Case(False, False),  # test_plugin.py
    "replaceFailedInstances": Case("OnRequest", "Automatic"),  # test_cluster_repair.py
    "deletionPolicy": Case("Delete", "Retain"),  # test_cluster_repair.py
}
INITDB: Mapping[str, Any] = {
    "database": "shop",
    "owner": "keeper",
    "secret": {"name": "owner"},
    "postInitApplicationSQLRefs": {
        "secretRefs": [{"name": "sql", "key": "a"}],
        "configMapRefs": [{"name": "sql", "key": "b"}],
    },
    "encoding": "LATIN9",
    "localeProvider": "libc",
    "locale": "C",
    "walSegmentSize": 8,
}
"""Given once, for good. What is seen of each: `test_what_is_given_once`."""
FINAL: Mapping[str, Any] = {
    **{f"bootstrap.initdb.{name}": value for name, value in INITDB.items() if not isinstance(value, dict)},
    "bootstrap.initdb.secret.name": "owner",
    "bootstrap.initdb.postInitApplicationSQLRefs.secretRefs": INITDB["postInitApplicationSQLRefs"]["secretRefs"],
    "bootstrap.initdb.postInitApplicationSQLRefs.configMapRefs": INITDB["postInitApplicationSQLRefs"][
        "configMapRefs"
    ],
    "storage.storageClass": "limited",
    "walStorage.storageClass": "limited",
}
