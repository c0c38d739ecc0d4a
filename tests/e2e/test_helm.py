"""Install, upgrade, uninstall and reinstall of a project's chart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster import buildah, projects, tools
from devcluster.errors import NotReady
from devcluster.images import Image, load
from devcluster.progress import Progress
from devcluster.target import Target, wait_until
from framework_support.helm_runner import Helm
from framework_support.projects import create_project

IMAGE = "steersman.dev/parcel-operator:e2e"
INIT = ("init", "--domain", "packages.test", "--project-name", "parcel-operator")
KIND = ("--group", "post", "--version", "v1alpha1", "--kind", "Parcel")
WEBHOOK = ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation")
DEFINITION = "parcels.post.packages.test"
DEPLOYMENT = "deployment/post-parcel-operator"


@pytest.fixture(scope="module", autouse=True)
def kubectl(bare_cluster: Target) -> Iterator[None]:
    """Put the kubectl of the cluster into PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(bare_cluster.kubectl_path).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate a project. Tests must not change it."""
    return create_project(
        tmp_path_factory.mktemp("helm") / "parcel-operator", INIT, ("create", "api", *KIND), WEBHOOK
    )


@pytest.fixture(scope="module")
def image(bare_cluster: Target, project: Path) -> Image:
    """Build the image and load it into the nodes."""
    if not bare_cluster.is_devcluster:
        pytest.skip("the image is built here, and loaded into the nodes of the devcluster")
    (built,) = projects.ensure(project, IMAGE, Progress())
    load(built)
    return built


@pytest.fixture
def helm(bare_cluster: Target, namespace: str, tmp_path: Path) -> Iterator[Helm]:
    """Return Helm for the cluster. Remove the release and its definitions after the test."""
    found = Helm(tools.helm(), tmp_path / "helm", bare_cluster.kubeconfig)
    delete_leftovers(bare_cluster)
    yield found
    found.run("uninstall", "post", "--namespace", namespace, "--wait")
    delete_leftovers(bare_cluster)


def delete_leftovers(cluster: Target) -> None:
    """Delete leftovers of a release."""
    cluster.kubectl("delete", "crd", DEFINITION, "--ignore-not-found", "--timeout=60s", seconds=80)


def chart(root: Path) -> Path:
    """Generate the chart of the project."""
    create_project(root, ("manifests",), ("chart", "--image", IMAGE), ("chart", "--image", IMAGE, "--check"))
    return root / "dist/chart"


def parcel(namespace: str, **spec: Any) -> str:
    """Return the manifest of a Parcel."""
    head = {"apiVersion": "post.packages.test/v1alpha1", "kind": "Parcel"}
    return json.dumps({**head, "metadata": {"name": "first", "namespace": namespace}, "spec": spec})


def apply_when_accepted(cluster: Target, manifest: str) -> None:
    """Apply ``manifest`` as soon as the webhooks are reachable."""

    def applied() -> bool:
        nonlocal said
        done = cluster.try_kubectl("apply", "--server-side", "--filename=-", stdin=manifest)
        assert done.returncode == 0 or "failed calling webhook" in done.stderr, done.stderr
        said = done.stderr.strip()
        return done.returncode == 0

    said = ""
    try:
        wait_until("the webhooks answer", applied, seconds=60)
    except NotReady as error:
        raise AssertionError(said) from error


def wait_until_ready(cluster: Target, namespace: str) -> dict[str, Any]:
    """Return the Parcel when its current generation is ready."""

    def answered() -> dict[str, Any] | None:
        found = cluster.get("parcel", "first", f"--namespace={namespace}") or {}
        status = found.get("status", {})
        conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
        current = status.get("observedGeneration") == found.get("metadata", {}).get("generation")
        return found if conditions.get("Ready") == "True" and current else None

    return wait_until("the parcel is Ready", answered, seconds=120)


@pytest.mark.requirement("overview/standard-deployment", "overview/chart", "user/keep-crds")
def test_a_release_from_its_installation_to_the_next(
    bare_cluster: Target, namespace: str, helm: Helm, project: Path, image: Image, tmp_path: Path
) -> None:
    cluster, at = bare_cluster, ("--namespace", namespace)
    project = Path(shutil.copytree(project, tmp_path / "parcel-operator"))
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    first = chart(project)
    helm("lint", "--strict", str(first))
    values = ("--set", "replicaCount=2,podDisruptionBudget.enabled=true,resources.requests.cpu=20m")
    narrow = ("--set", f"watchNamespaces={{{namespace}}}")
    helm("install", "post", str(first), *at, *values, *narrow, "--wait", "--timeout=180s")
    apply_when_accepted(cluster, parcel(namespace))
    uid = wait_until_ready(cluster, namespace)["metadata"]["uid"]
    pods = cluster.kubectl("get", "pods", f"--namespace={namespace}", "--output=name").split()
    assert len(pods) == 2
    # With the namespace option, the operator has no permission in other namespaces.
    account = f"--as=system:serviceaccount:{namespace}:post-parcel-operator"
    listing = ("auth", "can-i", "list", "parcels.post.packages.test", account)
    assert cluster.kubectl(*listing, f"--namespace={namespace}").strip() == "yes"
    assert cluster.try_kubectl(*listing, "--namespace=default").stdout.strip() == "no"

    # The upgrade adds a field to the definition, and permissions for the whole cluster.
    types = project / "src/parcel_operator/api/v1alpha1/parcel.py"
    written = types.read_text()
    types.write_text(written.replace("    foo: str", "    weight: int = 1\n    foo: str"))
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace('version = "0.1.0"', 'version = "0.2.0"'))
    kept = ("--reset-then-reuse-values", "--set-json", "watchNamespaces=[]")
    helm("upgrade", "post", str(chart(project)), *at, *kept, "--wait", "--timeout=180s")
    assert (cluster.get(DEPLOYMENT, *at) or {})["spec"]["replicas"] == 2
    apply_when_accepted(cluster, parcel(namespace, weight=7))
    assert wait_until_ready(cluster, namespace)["spec"]["weight"] == 7
    assert cluster.kubectl(*listing, "--namespace=default").strip() == "yes"

    helm("uninstall", "post", *at, "--wait", "--timeout=120s")
    assert cluster.get(DEPLOYMENT, f"--namespace={namespace}") is None
    assert cluster.get("clusterrole", "post-parcel-operator-manager-role") is None
    kept = cluster.get("parcel", "first", f"--namespace={namespace}")
    assert kept is not None
    assert kept["metadata"]["uid"] == uid

    helm("install", "post", str(project / "dist/chart"), *at, "--wait", "--timeout=180s")
    apply_when_accepted(cluster, parcel(namespace, weight=9))
    again = wait_until_ready(cluster, namespace)
    assert (again["metadata"]["uid"], again["spec"]["weight"]) == (uid, 9)


def test_a_bill_of_materials_of_the_image(
    image: Image, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"graphroot": tmp_path / "storage", "runroot": tmp_path / "run"}
    lines = (line.partition(" = ") for line in buildah.storage_configuration().splitlines())
    storage = tmp_path / "storage.conf"
    storage.write_text(
        "\n".join(
            f'{name}{equals}"{own[name]}"' if name in own else f"{name}{equals}{value}"
            for name, equals, value in lines
        )
    )
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    subprocess.run(["buildah", "pull", "--quiet", f"oci-archive:{image.archive}"], check=True, capture_output=True)
    file = tmp_path / "sbom.cdx.json"
    create_project(project, ("sbom", "--image", IMAGE, "--builder", "buildah", "--output", str(file)))
    found = json.loads(file.read_text())
    assert found["metadata"]["component"]["purl"] == "pkg:pypi/parcel-operator@0.1.0"
    assert {"steersman", "msgspec", "cryptography", "uvloop", "pip"} <= {c["name"] for c in found["components"]}
    assert not subprocess.run(["buildah", "containers", "--quiet"], check=True, capture_output=True).stdout
