"""Operator Lifecycle Manager: from a Subscription to a reconciled object."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster import projects
from devcluster.images import load
from devcluster.progress import Progress
from devcluster.target import Target, wait_until
from framework_support import olm
from framework_support.projects import create_project

IMAGE = "steersman.dev/ferry-operator:e2e"
INIT = ("init", "--domain", "bundles.test", "--project-name", "ferry-operator")
KIND = ("--group", "sea", "--version", "v1alpha1", "--kind", "Ferry")
WEBHOOK = ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation")
SAMPLE = "config/samples/sea_v1alpha1_ferry.yaml"
VERSION = "ferry-operator.v0.1.0"


@pytest.fixture(scope="module", autouse=True)
def kubectl(bare_cluster: Target) -> Iterator[None]:
    """Put the kubectl of the cluster into PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(bare_cluster.kubectl_path).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def project(bare_cluster: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate a project with a bundle, and load its image."""
    root = create_project(tmp_path_factory.mktemp("olm") / "ferry-operator", INIT, ("create", "api", *KIND), WEBHOOK)
    image = os.environ.get("STEERSMAN_FERRY_IMAGE", IMAGE)
    create_project(root, ("bundle", "--image", image))
    if bare_cluster.is_devcluster:
        for found in projects.ensure(root, IMAGE, Progress()):
            load(found)
    return root


@pytest.fixture
def watched(bare_cluster: Target, namespace: str) -> Iterator[str]:
    """Create a namespace in addition to that of the operator."""
    name = f"{namespace}-too"
    bare_cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", seconds=200)
    bare_cluster.kubectl("create", "namespace", name)
    yield name
    bare_cluster.kubectl("delete", "namespace", name, "--timeout=180s", seconds=200)


@pytest.fixture
def definitions(bare_cluster: Target) -> Iterator[None]:
    """Install the definitions of OLM. Remove all definitions and roles afterwards."""
    crds = str(olm.definitions())
    bare_cluster.kubectl("apply", "--server-side", f"--filename={crds}")

    def are_served() -> bool:
        return bare_cluster.try_kubectl("wait", "--for=condition=Established", f"--filename={crds}").returncode == 0

    wait_until("OLM's definitions are served", are_served, seconds=60)
    yield
    roles = [f"ferry-operator-{each}" for each in ("ferry-editor", "ferry-viewer", "metrics-reader")]
    gone = ("--ignore-not-found", "--timeout=60s")
    bare_cluster.kubectl("delete", f"--filename={crds}", *gone, seconds=80)
    bare_cluster.kubectl("delete", "crd", "ferries.sea.bundles.test", *gone, seconds=80)
    bare_cluster.kubectl("delete", "clusterrole", *roles, *gone, seconds=80)


@pytest.fixture
def catalog(bare_cluster: Target, project: Path, namespace: str, definitions: None, tmp_path: Path) -> Iterator[str]:
    """Run OLM, and yield the address of a catalog with the bundle."""
    olm.catalog(
        project / "bundle", tmp_path / "catalog", package="ferry-operator", channel="candidate", version=VERSION
    )
    with olm.running(bare_cluster, tmp_path / "catalog", tmp_path, namespace) as address:
        yield address
        # While OLM runs, it removes its objects outside of the namespace.
        for kind in ("subscription", "csv", "operatorgroup"):
            bare_cluster.kubectl("delete", kind, "--all", f"--namespace={namespace}")
        wait_until("OLM has cleaned up", lambda: not olm_leftovers(bare_cluster), seconds=60)


def olm_webhooks(cluster: Target) -> list[str]:
    """Return the webhook configurations of OLM."""
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    return cluster.kubectl("get", kinds, f"--selector=olm.owner={VERSION}", "--output=name").split()


def olm_leftovers(cluster: Target) -> list[str]:
    """Return cluster-scoped leftovers of OLM."""
    roles = cluster.kubectl("get", "clusterroles,clusterrolebindings", "--output=name").split()
    return [*olm_webhooks(cluster), *(r for r in roles if "olm.og.ferries" in r or VERSION in r)]


def subscription_manifests(catalog: str, namespace: str, watched: str) -> str:
    """Return the manifests that a user applies."""
    at = {"namespace": namespace}
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "CatalogSource",
            "metadata": {"name": "ferries", **at},
            "spec": {"sourceType": "grpc", "address": catalog},
        },
        {
            "apiVersion": "operators.coreos.com/v1",
            "kind": "OperatorGroup",
            "metadata": {"name": "ferries", **at},
            "spec": {"targetNamespaces": [watched]},
        },
        {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "Subscription",
            "metadata": {"name": "ferries", **at},
            "spec": {
                "name": "ferry-operator",
                "channel": "candidate",
                "source": "ferries",
                "sourceNamespace": namespace,
            },
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


@pytest.mark.requirement("programming/olm", "pattern/publish")
def test_from_a_subscription_to_a_reconciled_object(
    bare_cluster: Target, project: Path, catalog: str, namespace: str, watched: str
) -> None:
    cluster = bare_cluster
    cluster.kubectl(
        "apply", "--server-side", "--filename=-", stdin=subscription_manifests(catalog, namespace, watched)
    )

    def succeeded() -> bool:
        found = cluster.get("csv", VERSION, f"--namespace={namespace}") or {}
        return found.get("status", {}).get("phase") == "Succeeded"

    wait_until("OLM has installed the operator", succeeded, seconds=180)
    assert len(olm_webhooks(cluster)) == 2
    # Requests to the webhooks in the watched namespace use the certificate of OLM.
    for place in (namespace, watched):
        cluster.kubectl("apply", "--server-side", f"--namespace={place}", f"--filename={project / SAMPLE}")

    def ready(place: str) -> bool:
        found = cluster.get("ferry", "ferry-sample", f"--namespace={place}") or {}
        conditions = {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", [])}
        return conditions.get("Ready") == "True"

    wait_until("the ferry is Ready", lambda: ready(watched), seconds=60)
    assert not ready(namespace)
