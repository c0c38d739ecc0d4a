"""Charts rendered by the real helm."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from framework_support.helm_runner import Helm
from framework_support.packaged_operator import Manifest, operator_container, single_manifest, with_changed
from framework_support.projects import EXAMPLES, create_project
from steersman_cli.packaging import OperatorManifests
from steersman_manifests.yaml_codec import dump_yaml

from .conftest import WriteChart

# The first test builds helm.
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("helm")]


def test_chart_lints_and_is_reproducible(installation: OperatorManifests, write_chart: WriteChart) -> None:
    chart = write_chart(installation, image="example.com/databaseuser:v1")
    chart.helm("lint", "--strict", str(chart.directory))
    files = {p: p.read_text() for p in chart.directory.rglob("*") if p.is_file()}
    write_chart(installation, image="example.com/databaseuser:v1")
    assert {p: p.read_text() for p in chart.directory.rglob("*") if p.is_file()} == files


def test_default_release_equals_kustomize_output(installation: OperatorManifests, write_chart: WriteChart) -> None:
    found = write_chart(installation).template(name="databaseuser", namespace="databaseuser-system")
    released = {(m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]): m for m in found}
    for manifest in copy.deepcopy(installation.manifests):
        metadata = manifest["metadata"]
        if manifest["kind"] == "Namespace":
            continue
        same = released.pop((manifest["kind"], metadata.get("namespace", ""), metadata["name"]))
        if manifest["kind"] == "Deployment":
            ours, theirs = (operator_container([m]) for m in (manifest, same))
            assert set(ours.pop("args")) <= set(theirs.pop("args"))
            assert theirs.pop("image") == "databaseuser:1.2.0"
            del ours["image"]
            assert ours == theirs
            continue
        content = {k: v for k, v in same.items() if k != "metadata"}
        content = without_instance_label(content)
        assert content == {k: v for k, v in manifest.items() if k != "metadata"}
    assert released == {}


def without_instance_label(value: Any) -> Any:
    if isinstance(value, dict):
        found = cast("Manifest", value)
        return {k: without_instance_label(v) for k, v in found.items() if k != "app.kubernetes.io/instance"}
    return [without_instance_label(v) for v in cast("list[Any]", value)] if isinstance(value, list) else value


def test_release_name_is_used_in_all_references(installation: OperatorManifests, write_chart: WriteChart) -> None:
    found = write_chart(installation).template()
    assert operator_container(found)["args"] == [
        "--leader-elect",
        "--leader-election-id=post-databaseuser",
        "--log-level=info",
        "--log-format=json",
        "--webhook-service=mail/post-databaseuser-webhook",
    ]
    lease = single_manifest(found, "Role", "post-databaseuser-leader-election")
    assert lease["rules"][1]["resourceNames"] == ["post-databaseuser"]
    secret = single_manifest(found, "Role", "post-databaseuser-webhook-certificate")
    assert secret["rules"][1]["resourceNames"] == ["post-databaseuser-webhook-cert"]
    role = single_manifest(found, "ClusterRole", "post-databaseuser-manager-role")
    named = [r["resourceNames"] for r in role["rules"] if "resourceNames" in r]
    assert named == [["post-databaseuser-webhook"]]
    binding = single_manifest(found, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    account = {"kind": "ServiceAccount", "name": "post-databaseuser", "namespace": "mail"}
    assert binding["subjects"] == [account]
    webhook = single_manifest(found, "ValidatingWebhookConfiguration", "post-databaseuser-webhook")["webhooks"][0]
    service = single_manifest(found, "Service")
    assert webhook["clientConfig"]["service"]["name"] == service["metadata"]["name"] == "post-databaseuser-webhook"
    pods = single_manifest(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pods.items()
    assert "databaseuser-system" not in str(found)


def test_long_release_name_leaves_room_for_service_suffixes(
    installation: OperatorManifests, write_chart: WriteChart
) -> None:
    found = write_chart(installation).template("--set", f"fullnameOverride={'a' * 63}")
    assert len(single_manifest(found, "Service")["metadata"]["name"]) == 63


def test_long_release_name_leaves_room_for_any_service(
    installation: OperatorManifests, write_chart: WriteChart
) -> None:
    def called(service: Manifest) -> None:
        service["metadata"]["name"] = "webhook-service"

    chart = write_chart(with_changed(installation, "Service", called))
    found = chart.template("--set", f"fullnameOverride={'a' * 63}")
    assert len(single_manifest(found, "Service")["metadata"]["name"]) == 63


def test_numeric_names_are_rendered_as_strings(installation: OperatorManifests, write_chart: WriteChart) -> None:
    chart = write_chart(installation)
    found = chart.template("--set-string", "fullnameOverride=12,nameOverride=34", name="56", namespace="78")
    deployment = single_manifest(found, "Deployment")
    assert (deployment["metadata"]["name"], deployment["metadata"]["namespace"]) == ("12", "78")
    labels = {"app.kubernetes.io/name": "34", "app.kubernetes.io/instance": "56"}
    assert labels.items() <= deployment["spec"]["selector"]["matchLabels"].items()
    account = {"kind": "ServiceAccount", "name": "12", "namespace": "78"}
    assert single_manifest(found, "ClusterRoleBinding")["subjects"] == [account]
    assert single_manifest(found, "Role", "12-leader-election")["rules"][1]["resourceNames"] == ["12"]
    assert deployment["spec"]["replicas"] == 1


def test_parent_chart_can_disable_subchart(
    installation: OperatorManifests, write_chart: WriteChart, tmp_path: Path
) -> None:
    chart = write_chart(installation)
    whole = tmp_path / "whole"
    part = {"name": "databaseuser", "version": "1.2.0", "condition": "databaseuser.enabled"}
    about = {"apiVersion": "v2", "name": "whole", "version": "1.0.0", "dependencies": [part]}
    shutil.copytree(chart.directory, whole / "charts/databaseuser")
    (whole / "Chart.yaml").write_text(dump_yaml(about))
    assert single_manifest(chart.helm.template(whole, "--set", "databaseuser.enabled=true"), "Deployment")
    assert chart.helm.template(whole, "--set", "databaseuser.enabled=false") == []


def test_image_value_applies_to_all_operator_containers(
    installation: OperatorManifests, write_chart: WriteChart
) -> None:
    def beside(deployment: Manifest) -> None:
        pod = deployment["spec"]["template"]["spec"]
        pod["initContainers"] = [{"name": "before", "image": "controller:latest"}]
        pod["containers"].append({"name": "beside", "image": "controller:latest"})

    chart = write_chart(with_changed(installation, "Deployment", beside))
    pod = single_manifest(chart.template("--set", "image.tag=v9"), "Deployment")["spec"]["template"]["spec"]
    images = {c["image"] for c in (*pod["initContainers"], *pod["containers"])}
    assert images == {"databaseuser:v9"}


def test_externally_managed_certificate_is_served(installation: OperatorManifests, write_chart: WriteChart) -> None:
    def served(deployment: Manifest) -> None:
        deployment["spec"]["template"]["spec"]["containers"][0]["args"] = ["--webhook-cert-path=/own"]

    chart = write_chart(replace(with_changed(installation, "Deployment", served), components={}))
    assert "--webhook-cert-path=/own" in operator_container(chart.template())["args"]


def test_secure_metrics_are_scraped_over_https(installation: OperatorManifests, write_chart: WriteChart) -> None:
    def secure(deployment: Manifest) -> None:
        deployment["spec"]["template"]["spec"]["containers"][0]["args"] = ["--metrics-secure"]

    chart = write_chart(with_changed(installation, "Deployment", secure))
    monitor = single_manifest(chart.template("--set", "metrics.serviceMonitor.enabled=true"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["bearerTokenFile"].endswith("/serviceaccount/token")


def test_certificates_of_other_services_are_always_rendered(
    installation: OperatorManifests, write_chart: WriteChart
) -> None:
    component = copy.deepcopy(installation.components["certmanager"])
    issuer, certificate = single_manifest(component, "Issuer"), single_manifest(component, "Certificate")
    issuer["metadata"]["name"] = "databaseuser-metrics"
    certificate["metadata"]["name"] = "databaseuser-metrics"
    certificate["spec"] = {
        "dnsNames": ["databaseuser-metrics.databaseuser-system.svc"],
        "issuerRef": {"kind": "Issuer", "name": "databaseuser-metrics"},
        "secretName": "metrics-cert",
    }
    service = copy.deepcopy(installation.of_kind("Service")[0])
    service["metadata"]["name"] = "databaseuser-metrics"
    chart = write_chart(replace(installation, manifests=(*installation.manifests, service, issuer, certificate)))
    found = chart.template()
    assert single_manifest(found, "Certificate")["spec"] == {
        "dnsNames": ["post-databaseuser-metrics.mail.svc"],
        "issuerRef": {"kind": "Issuer", "name": single_manifest(found, "Issuer")["metadata"]["name"]},
        "secretName": "metrics-cert",
    }
    both = chart.template("--set", "webhooks.certificates=cert-manager")
    injected = single_manifest(both, "ValidatingWebhookConfiguration")["metadata"]["annotations"]
    assert injected == {"cert-manager.io/inject-ca-from": "mail/post-databaseuser-webhook"}
    assert {m["metadata"]["name"] for m in both if m["kind"] == "Issuer"} == {
        "post-databaseuser-metrics",
        "post-databaseuser-selfsigned",
    }


def test_certificate_secret_name_matches_mounted_volume(
    installation: OperatorManifests, write_chart: WriteChart
) -> None:
    component = copy.deepcopy(installation.components["certmanager"])
    single_manifest(component, "Certificate")["spec"]["secretName"] = "serving-cert"

    def mounted(deployment: Manifest) -> None:
        volume = {"name": "serving", "secret": {"secretName": "serving-cert"}}
        deployment["spec"]["template"]["spec"]["volumes"] = [volume]

    installation = with_changed(installation, "Deployment", mounted)
    chart = write_chart(replace(installation, manifests=(*installation.manifests, *component), components={}))
    found = chart.template()
    (volume,) = single_manifest(found, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == single_manifest(found, "Certificate")["spec"]["secretName"]


def test_objects_of_one_name_in_several_namespaces(installation: OperatorManifests, write_chart: WriteChart) -> None:
    settings: list[Manifest] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": place}}
        for place in ("databaseuser-system", "elsewhere")
    ]
    found = write_chart(replace(installation, manifests=(*installation.manifests, *settings))).template()
    assert [m["metadata"]["namespace"] for m in found if m["kind"] == "ConfigMap"] == ["mail", "elsewhere"]


def test_template_like_text_is_escaped(installation: OperatorManifests, write_chart: WriteChart) -> None:
    words = "Such as {{ .Values.image }}, {{{ x }}} and {{- end }}; see `{{`. " + "long " * 40 + "{{ y }}"

    def described(definition: Manifest) -> None:
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = words
        definition["metadata"]["annotations"] = {"note": "{{ z }}"}

    found = single_manifest(
        write_chart(with_changed(installation, "CustomResourceDefinition", described)).template(),
        "CustomResourceDefinition",
    )
    assert found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] == words
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep", "note": "{{ z }}"}


def test_edited_config_appears_in_chart(installation: OperatorManifests, write_chart: WriteChart) -> None:
    words = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "words", "namespace": "databaseuser-system"},
    }

    def widened(deployment: Manifest) -> None:
        pod = deployment["spec"]["template"]["spec"]
        manager = pod["containers"][0]
        manager["args"] = ["serve", "--zap-log-level", "debug", "--own=1", "--leader-election-id=mine"]
        manager["volumeMounts"] = [{"name": "words", "mountPath": "/words"}]
        pod["volumes"] = [{"name": "words", "configMap": {"name": "words"}}]
        pod["containers"].append({"name": "beside", "image": "example.com/beside:1"})
        deployment["spec"]["replicas"] = 2

    installation = with_changed(installation, "Deployment", widened)
    installation = replace(installation, manifests=(*installation.manifests, {**words, "data": {"a": "{{ b }}"}}))
    chart = write_chart(installation)
    found = chart.template("--set", "leaderElection.enabled=true")
    pod = single_manifest(found, "Deployment")["spec"]["template"]["spec"]
    manager, beside = pod["containers"]
    assert manager["args"][:4] == [
        "serve",
        "--own=1",
        "--leader-elect",
        "--leader-election-id=post-databaseuser-mine",
    ]
    assert "--log-level=debug" in manager["args"]
    assert beside == {"name": "beside", "image": "example.com/beside:1"}
    assert pod["volumes"] == [{"name": "words", "configMap": {"name": "words"}}]
    assert manager["volumeMounts"] == [{"name": "words", "mountPath": "/words"}]
    own = single_manifest(found, "ConfigMap")
    assert (own["metadata"]["name"], own["metadata"]["namespace"], own["data"]) == ("words", "mail", {"a": "{{ b }}"})
    # The same as in the manifests: two replicas without leader election.
    assert "otherwise all replicas reconcile" in chart.template_error()


def test_chart_without_webhooks_and_crds_renders(installation: OperatorManifests, write_chart: WriteChart) -> None:
    left = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "CustomResourceDefinition", "Service")
    manifests = tuple(m for m in installation.manifests if m["kind"] not in left)
    chart = write_chart(replace(installation, manifests=manifests))
    assert not {m["kind"] for m in chart.template()} & set(left)
    assert "--webhook" not in str(operator_container(chart.template())["args"])
    assert "'webhooks' not allowed" in chart.template_error("--set", "webhooks.certificates=self")


ROOT = Path(__file__).parents[5]
PROJECTS = [ROOT / "operators/databases", *EXAMPLES]


@pytest.mark.parametrize("project", PROJECTS, ids=lambda root: root.name)
def test_charts_of_repository_projects_are_valid(project: Path, helm: Helm, tmp_path: Path) -> None:
    create_project(project, ("chart", "--image", "example.com/operator:v1", "--directory", str(tmp_path)))
    helm("lint", "--strict", str(tmp_path))
    found = helm.template(tmp_path)
    assert operator_container(found)["image"] == "example.com/operator:v1"
    # The CRDs of an operator that shares them with another one are not part of its deployment.
    declared = yaml.safe_load((project / "config/default/kustomization.yaml").read_text())["resources"]
    has_crds = any(manifest["kind"] == "CustomResourceDefinition" for manifest in found)
    assert has_crds is ("../crd" in declared)


def test_cluster_role_named_like_certificate_role_is_kept(
    installation: OperatorManifests, write_chart: WriteChart
) -> None:
    name = "databaseuser-webhook-certificate"
    binding = copy.deepcopy(single_manifest(installation.manifests, "ClusterRoleBinding"))
    role = copy.deepcopy(single_manifest(installation.manifests, "ClusterRole", "databaseuser-manager-role"))
    role["metadata"]["name"] = binding["metadata"]["name"] = binding["roleRef"]["name"] = name
    chart = write_chart(replace(installation, manifests=(*installation.manifests, role, binding)))
    found = chart.template("--set", "webhooks.certificates=cert-manager")
    assert [m["kind"] for m in found if m["metadata"]["name"] == f"post-{name}"] == [
        "ClusterRole",
        "ClusterRoleBinding",
    ]


@pytest.mark.parametrize("listed", [False, True])
def test_certificates_of_cert_manager(
    installation: OperatorManifests, write_chart: WriteChart, webhook_project: Path, tmp_path: Path, listed: bool
) -> None:
    switch = ("--set", "webhooks.certificates=cert-manager")
    if listed:
        config = Path(shutil.copytree(webhook_project / "config", tmp_path / "config"))
        default = config / "default/kustomization.yaml"
        default.write_text(
            default.read_text().replace("# components", "components").replace("#   - ../c", "  - ../c")
        )
        installation, switch = OperatorManifests.read(config, "databaseuser"), ()
    chart = write_chart(installation)
    found = chart.template(*switch)
    certificate = single_manifest(found, "Certificate")
    assert certificate["spec"] == {
        "dnsNames": ["post-databaseuser-webhook.mail.svc", "post-databaseuser-webhook.mail.svc.cluster.local"],
        "issuerRef": {"kind": "Issuer", "name": single_manifest(found, "Issuer")["metadata"]["name"]},
        "secretName": "post-databaseuser-webhook-cert",
    }
    arguments, pod = (
        operator_container(found)["args"],
        single_manifest(found, "Deployment")["spec"]["template"]["spec"],
    )
    assert [a for a in arguments if a.startswith("--webhook-cert-path")] == ["--webhook-cert-path=/certs"]
    (volume,) = pod["volumes"]
    assert volume["secret"] == {"secretName": certificate["spec"]["secretName"]}
    (mount,) = operator_container(found)["volumeMounts"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/certs")
    injected = {"cert-manager.io/inject-ca-from": f"mail/{certificate['metadata']['name']}"}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert single_manifest(found, kind)["metadata"]["annotations"] == injected
    # The operator has no permissions for objects that it does not manage.
    assert "secrets" not in str([m.get("rules") for m in found])
    own = chart.template("--set", "webhooks.certificates=self")
    assert "cert-manager" not in str(own)
    assert "volumes" not in single_manifest(own, "Deployment")["spec"]["template"]["spec"]
