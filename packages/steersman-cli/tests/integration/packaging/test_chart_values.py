"""Values of a chart, rendered by the real helm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from framework_support.packaged_operator import Manifest, operator_container, single_manifest, with_changed
from steersman_cli.packaging import OperatorManifests
from steersman_manifests.yaml_codec import dump_yaml

from .conftest import WriteChart

# The first test builds helm.
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("helm")]
DIGEST = "sha256:" + "0" * 64


@pytest.mark.requirement("overview/chart", "overview/requests")
def test_values_of_pods(installation: OperatorManifests, write_chart: WriteChart, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "replicaCount": 3,
        "image": {"repository": "example.com:5000/users", "tag": "v9", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "serviceAccount": {"annotations": {"cloud": "role"}},
        "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "100m"}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "priorityClassName": "high",
        "podSecurityContext": {"runAsUser": 7},
        "securityContext": {"privileged": False},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "users"},
        "extraEnv": [{"name": "GREETING", "value": "{{ hello }}"}],
        "extraArgs": ["--debug-bind-address=:8082"],
        "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "logging": {"level": "debug", "format": "console"},
    }
    (tmp_path / "values.yaml").write_text(dump_yaml(values))
    found = write_chart(installation).template("--values", str(tmp_path / "values.yaml"))
    deployment = single_manifest(found, "Deployment")["spec"]
    pod, manager = deployment["template"]["spec"], operator_container(found)
    assert deployment["replicas"] == 3
    assert (manager["image"], manager["imagePullPolicy"]) == ("example.com:5000/users:v9", "Always")
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"):
        assert pod[name] == values[name]
    assert pod["priorityClassName"] == "high"
    # Helm merges mappings. Omitted keys keep the values of the manifests.
    assert pod["securityContext"] == {**installation.pod["securityContext"], "runAsUser": 7}
    assert manager["resources"]["requests"] == {"cpu": "100m", "memory": "64Mi"}
    assert manager["securityContext"]["privileged"] is False
    metadata = deployment["template"]["metadata"]
    assert metadata["annotations"] == {"a": "b"}
    assert metadata["labels"]["team"] == "users"
    assert manager["env"][-1] == values["extraEnv"][0]
    assert {"--log-level=debug", "--log-format=console", *values["extraArgs"]} <= set(manager["args"])
    assert pod["volumes"] == values["extraVolumes"]
    assert manager["volumeMounts"] == values["extraVolumeMounts"]
    assert single_manifest(found, "ServiceAccount")["metadata"]["annotations"] == {"cloud": "role"}


def test_chart_image_digest_overrides_tag(installation: OperatorManifests, write_chart: WriteChart) -> None:
    chart = write_chart(installation, image=f"example.com:5000/users:v1@{DIGEST}")
    assert operator_container(chart.template())["image"] == f"example.com:5000/users@{DIGEST}"
    assert operator_container(chart.template("--set", "image.digest="))["image"] == "example.com:5000/users:v1"


def test_parts_that_users_switch(installation: OperatorManifests, write_chart: WriteChart) -> None:
    chart = write_chart(installation)
    default_kinds = {m["kind"] for m in chart.template()}
    for switch, kinds in {
        "metrics.serviceMonitor.enabled=true": {"ServiceMonitor"},
        "metrics.monitors.enabled=true": {"PodMonitor"},
        "networkPolicy.enabled=true": {"NetworkPolicy"},
        "webhooks.certificates=cert-manager": {"Issuer", "Certificate"},
    }.items():
        assert {m["kind"] for m in chart.template("--set", switch)} - default_kinds == kinds, switch
    for switch, kinds in {
        "serviceAccount.create=false": {"ServiceAccount"},
        "podDisruptionBudget.enabled=false": {"PodDisruptionBudget"},
        "rbac.create=false": {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"},
        "crds.install=false": {"CustomResourceDefinition"},
    }.items():
        assert default_kinds - {m["kind"] for m in chart.template("--set", switch)} == kinds, switch
    budget = single_manifest(
        chart.template("--set", "podDisruptionBudget.minAvailable=50%"),
        "PodDisruptionBudget",
    )
    assert budget["spec"]["minAvailable"] == "50%"
    assert "maxUnavailable" not in budget["spec"]


def test_chart_service_monitor_selects_metrics_service(
    installation: OperatorManifests, write_chart: WriteChart
) -> None:
    switches = "metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.interval=30s"
    found = write_chart(installation).template(
        "--set", f"{switches},metrics.serviceMonitor.labels.release=prometheus"
    )
    monitor, service = (
        single_manifest(found, "ServiceMonitor"),
        single_manifest(found, "Service", "post-databaseuser-metrics"),
    )
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    # The Service of the webhooks does not expose metrics.
    other = single_manifest(found, "Service", "post-databaseuser-webhook")
    assert not monitor["spec"]["selector"]["matchLabels"].items() <= other["metadata"]["labels"].items()


@pytest.mark.requirement("user/keep-crds")
def test_crds_are_kept_by_default(installation: OperatorManifests, write_chart: WriteChart) -> None:
    chart = write_chart(installation)
    keep = single_manifest(chart.template(), "CustomResourceDefinition")["metadata"]["annotations"]
    assert keep == {"helm.sh/resource-policy": "keep"}
    assert (
        "annotations"
        not in single_manifest(chart.template("--set", "crds.keep=false"), "CustomResourceDefinition")["metadata"]
    )


def test_some_namespaces_only(installation: OperatorManifests, write_chart: WriteChart) -> None:
    nodes = {"apiGroups": [""], "resources": ["nodes", "configmaps"], "verbs": ["get"]}
    teams = {"apiGroups": ["team.example.com"], "resources": ["teams/status"], "verbs": ["get"]}

    def widened(role: Manifest) -> None:
        if role["metadata"]["name"] == "databaseuser-manager-role":
            role["rules"] += [nodes, teams, {"nonResourceURLs": ["/version"], "verbs": ["get"]}]

    scoped = {("team.example.com", "teams")}
    chart = write_chart(with_changed(installation, "ClusterRole", widened), cluster_scoped=scoped)
    whole = single_manifest(chart.template(), "ClusterRole", "post-databaseuser-manager-role")
    found = chart.template("--set-string", "watchNamespaces={shop,1234}")
    assert "--namespaces=shop,1234" in operator_container(found)["args"]
    narrow = [m for m in found if m["kind"] == "Role" and m["metadata"]["name"] == "post-databaseuser-manager-role"]
    assert [m["metadata"]["namespace"] for m in narrow] == ["shop", "1234"]
    bound = [m for m in found if m["kind"] == "RoleBinding" and m["metadata"]["name"] == "post-databaseuser-manager"]
    assert [b["metadata"]["namespace"] for b in bound] == ["shop", "1234"]
    assert all(b["roleRef"]["kind"] == "Role" and b["subjects"][0]["namespace"] == "mail" for b in bound)
    rest = single_manifest(found, "ClusterRole", "post-databaseuser-manager-role")["rules"]
    outside = {r for rule in rest for r in rule.get("resources", rule.get("nonResourceURLs"))}
    configurations = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
    assert outside == {"nodes", "teams/status", "/version", *configurations}

    def granted(rules: list[dict[str, Any]]) -> set[tuple[str, str]]:
        return {(r, v) for rule in rules for r in rule.get("resources", ()) for v in rule["verbs"]}

    assert granted(rest) | granted(narrow[0]["rules"]) == granted(whole["rules"])
    assert not granted(rest) & granted(narrow[0]["rules"])


def test_webhook_namespace_selector_follows_watched(installation: OperatorManifests, write_chart: WriteChart) -> None:
    """An unavailable release must not block requests in namespaces of another one."""
    watched = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop", "1234"]}
    labels, unpaused = {"{{ team }}": "shop"}, {"key": "paused", "operator": "DoesNotExist"}
    selectors: list[Manifest] = [{}, {"matchLabels": labels}]
    for own in [*selectors, {"matchLabels": labels, "matchExpressions": [unpaused]}]:

        def narrowed(configuration: Manifest, own: Manifest = own) -> None:
            configuration["webhooks"][0]["namespaceSelector"] = own

        chart = write_chart(with_changed(installation, "ValidatingWebhookConfiguration", narrowed))
        [webhook] = single_manifest(chart.template(), "ValidatingWebhookConfiguration")["webhooks"]
        assert webhook.get("namespaceSelector", {}) == own
        found = chart.template("--set-string", "watchNamespaces={shop,1234}")
        [webhook] = single_manifest(found, "ValidatingWebhookConfiguration")["webhooks"]
        expressions = [*own.get("matchExpressions", []), watched]
        assert webhook["namespaceSelector"] == {**own, "matchExpressions": expressions}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("replicas=2", "'replicas' not allowed"),
        ("image.tagg=v1", "'tagg' not allowed"),
        ("replicaCount=-1", "/replicaCount"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("image.digest=sha256:1", "/image/digest"),
        ("logging.level=loud", "/logging/level"),
        ("webhooks.certificates=mine", "/webhooks/certificates"),
        ("watchNamespaces={Shop}", "/watchNamespaces/0"),
        ("watchNamespaces={shop,shop}", "/watchNamespaces"),
        ("metrics.serviceMonitor.interval=soon", "/metrics/serviceMonitor/interval"),
        ("resources.limit.cpu=1", "'limit' not allowed"),
        ("replicaCount=2,leaderElection.enabled=false", "otherwise all replicas reconcile"),
    ],
)
def test_values_that_are_refused(
    installation: OperatorManifests, write_chart: WriteChart, value: str, words: str
) -> None:
    assert words in write_chart(installation).template_error("--set", value)


def test_clusters_that_are_too_old_are_refused(installation: OperatorManifests, write_chart: WriteChart) -> None:
    chart = write_chart(installation)
    assert "requires kubeVersion: >=1.30.0-0" in chart.template_error("--kube-version", "1.29.9")
    for version in ("1.30.0", "1.36.3-gke.100"):
        assert chart.template("--kube-version", version)
