"""Build, deploy, inspect and undeploy a generated project with a webhook."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from devcluster import buildah, images
from devcluster.progress import Progress
from devcluster.target import Target, wait_until
from framework_support.package_index import package_index
from framework_support.projects import create_project, ours
from steersman.webhook.certificates import issue
from steersman_testing.envtest.ports import reserve_port

pytestmark = pytest.mark.xdist_group("project")

NAME = "e2e-widgets"
NAMESPACE = f"{NAME}-system"
IMAGE = "steersman.dev/e2e-widgets:test"
BASE = "steersman.dev/python:3.13"
CONTAINERFILE = Path(__file__).with_name("fresh_machine") / "Containerfile"
KIND = ("--group", "mygroup", "--version", "v1alpha1", "--kind", "Widget")
WIDGETS = "widgets.mygroup.e2e-widgets.steersman.dev"


class DeployedProject:
    """The project and its commands."""

    def __init__(self, root: Path, cluster: Target) -> None:
        self.root = root
        self.cluster = cluster

    def edit(self, name: str, old: str, new: str) -> None:
        file = self.root / name
        assert old in file.read_text(), name
        file.write_text(file.read_text().replace(old, new))

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command and return its result."""
        path = f"{Path(self.cluster.kubectl_path).parent}{os.pathsep}{os.environ['PATH']}"
        given = {"KUBECONFIG": str(self.cluster.kubeconfig)} if self.cluster.kubeconfig else {}
        variables = {**ours(self.root / "src"), "PATH": path, **given, **environment}
        return subprocess.run(command, cwd=self.root, env=variables, capture_output=True, text=True, check=False)

    def output(self, *command: str, **environment: str) -> str:
        """Return the output of a command. It must succeed."""
        ended = self.run(*command, **environment)
        assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr

    def make(self, *targets: str) -> str:
        """Run ``make`` in the environment of these tests, which needs no installation."""
        stamp = f"--old-file={sys.prefix}/.{NAME}"
        return self.output("make", f"VENV={sys.prefix}", stamp, f"IMG={IMAGE}", *targets)

    def steersman(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "steersman_cli", *arguments)

    def wait_for_rollout(self) -> None:
        where = f"--namespace={NAMESPACE}"
        self.cluster.kubectl("rollout", "status", f"deployment/{NAME}", where, "--timeout=120s", seconds=130)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, bare_cluster: Target) -> Iterator[DeployedProject]:
    """Generate the project and load its image into the nodes."""
    if not bare_cluster.is_devcluster:
        pytest.skip("requires the devcluster, because the image is loaded into its nodes")
    root = tmp_path_factory.mktemp("project")
    found = DeployedProject(root, bare_cluster)
    _remove(found)
    create_project(
        root,
        ("init", "--domain", "e2e-widgets.steersman.dev", "--project-name", NAME),
        ("create", "api", *KIND),
        ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation"),
    )
    # A user's change, which later explains a reconcile.
    found.edit(
        "config/manager/deployment.yaml",
        '["--leader-elect"]',
        '["--leader-elect", "--debug-bind-address=127.0.0.1:8082"]',
    )
    found.edit("config/default/kustomization.yaml", "# - ../network-policy", "- ../network-policy")
    _build(found, tmp_path_factory.mktemp("image"))
    yield found
    _remove(found)


def _build(project: DeployedProject, directory: Path) -> None:
    images.build(CONTAINERFILE, BASE, CONTAINERFILE.parent, {}, Progress())
    package_index(project.root / "wheels")
    storage = directory / "storage.conf"
    storage.write_text(buildah.storage_configuration())
    own = {"CONTAINERS_STORAGE_CONF": str(storage), "BUILDAH_ISOLATION": "chroot"}
    build = (sys.executable, "-m", "steersman_cli", "build", "--image", IMAGE, "--builder", "buildah")
    project.output(*build, "--build-arg", f"BASE={BASE}", **own)
    archive = directory / "image.tar"
    try:
        project.output("buildah", "push", IMAGE, f"docker-archive:{archive}:{IMAGE}", **own)
        images.load_archive(archive)
    finally:
        archive.unlink(missing_ok=True)
        project.run("buildah", "rmi", IMAGE, **own)


def _remove(project: DeployedProject) -> None:
    """Remove leftovers without the tested command."""
    kubectl = project.cluster.try_kubectl
    selector = f"--selector=app.kubernetes.io/name={NAME}"
    kubectl("delete", "crd", WIDGETS, "--ignore-not-found", seconds=120)
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", seconds=120)
    kubectl("delete", "clusterrole,clusterrolebinding", selector, "--ignore-not-found")
    kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    kubectl("delete", kinds, f"{NAME}-webhook", "--ignore-not-found")
    kubectl("delete", "clusterrole", f"{NAME}-manager-role", "--ignore-not-found")


@pytest.mark.requirement(
    "design/e2e-tests", "overview/standard-deployment", "user/in-cluster", "pattern/deployment", "pattern/image"
)
def test_project_is_deployed_and_removed(project: DeployedProject, bare_cluster: Target) -> None:
    before = project.steersman("doctor")
    assert before.returncode == 1, before.stdout
    assert "not installed" in before.stdout
    assert "not deployed" in before.stdout

    told = project.make("deploy")
    assert f"deployment.apps/{NAME} created" in told
    assert f"networkpolicy.networking.k8s.io/{NAME} created" in told
    project.wait_for_rollout()
    tested = project.make("test-e2e")
    assert "2 passed" in tested
    assert "skipped" not in tested
    looked = project.steersman("doctor")
    assert looked.returncode == 0, looked.stdout
    assert f"ok  certificate in the Secret {NAMESPACE}/{NAME}-webhook-cert" in looked.stdout
    assert "unchanged" in project.make("deploy")

    bare_cluster.kubectl("apply", "-k", str(project.root / "config/samples"), "--namespace=default")
    bare_cluster.kubectl("wait", "--for=condition=Ready", f"{WIDGETS}/widget-sample", "--namespace=default")
    _explain_reconcile(project, bare_cluster)

    refused = project.steersman("undeploy")
    assert refused.returncode == 2
    assert "objects exist: 1 widgets" in refused.stderr
    bare_cluster.kubectl("delete", "-k", str(project.root / "config/samples"), "--namespace=default")
    project.make("undeploy")
    kinds = "clusterrole,clusterrolebinding,mutatingwebhookconfiguration,validatingwebhookconfiguration,crd"
    left = bare_cluster.kubectl("get", kinds, "--output=name")
    assert not [line for line in left.splitlines() if NAME in line]
    wait_until("its namespace is gone", lambda: bare_cluster.get("namespace", NAMESPACE) is None, seconds=120)


def _explain_reconcile(project: DeployedProject, cluster: Target) -> None:
    """Explain a reconcile of the deployed operator."""
    with reserve_port() as reserved:
        port = reserved.getsockname()[1]
    command = [cluster.kubectl_path, f"--kubeconfig={cluster.kubeconfig}", "port-forward"]
    where = [f"--namespace={NAMESPACE}", f"deployment/{NAME}", f"{port}:8082"]
    with subprocess.Popen([*command, *where], stdout=subprocess.PIPE, text=True) as forwarding:
        assert forwarding.stdout is not None
        assert "Forwarding" in forwarding.stdout.readline()
        url = f"http://127.0.0.1:{port}"
        explained = project.steersman("explain", "widget", "default/widget-sample", "--url", url)
        forwarding.terminate()
    assert explained.returncode == 0, explained.stderr
    assert "created" in explained.stdout


def test_certificates_of_cert_manager_are_used(project: DeployedProject, bare_cluster: Target) -> None:
    """The test acts as cert-manager: it creates Secret and CA bundle."""
    project.edit(
        "config/default/kustomization.yaml", "# components:\n#   - ../certmanager", "components:\n  - ../certmanager"
    )
    # The kinds of cert-manager are not served here.
    project.edit("config/certmanager/kustomization.yaml", "resources:\n  - certificate.yaml\n", "")
    names = (f"{NAME}-webhook.{NAMESPACE}.svc",)
    pair = issue(names, datetime.now(UTC), timedelta(days=30))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": f"{NAME}-webhook-cert", "namespace": NAMESPACE},
        "stringData": {"tls.crt": pair.certificate, "tls.key": pair.key},
    }
    bare_cluster.kubectl("create", "namespace", NAMESPACE)
    bare_cluster.apply(yaml.safe_dump(secret))
    project.make("deploy")
    authority = base64.b64encode(pair.ca_certificate.encode()).decode()
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        found = bare_cluster.get(kind, f"{NAME}-webhook")
        assert found is not None
        injected = found["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        assert injected == f"{NAMESPACE}/{NAME}-webhook"
        patch = f'[{{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "{authority}"}}]'
        bare_cluster.kubectl("patch", kind, f"{NAME}-webhook", "--type=json", f"--patch={patch}")
    project.wait_for_rollout()
    assert "2 passed" in project.make("test-e2e")
    looked = project.steersman("doctor")
    assert looked.returncode == 0, looked.stdout
    project.make("undeploy")
