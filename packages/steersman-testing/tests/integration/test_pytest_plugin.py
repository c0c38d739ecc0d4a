"""Fixtures of the plugin on the real API server, also in parallel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from framework_support.documented_code import documented_files
from steersman_testing.access_recording import read_accesses
from steersman_testing.envtest import Envtest, find_binaries

pytest_plugins = ["pytester"]

OPTIONS = """
    [tool.pytest.ini_options]
    pythonpath = ["."]
    steersman_crds = ["greetings"]
    steersman_envtest_arguments = ["--feature-gates=AllAlpha=false", "audit-log-path=-"]
"""
KIND = '''
    from steersman import Resource, Spec, Status, resource

    class GreetingSpec(Spec):
        recipient: str

    @resource(group="example.com", version="v1")
    class Greeting(Resource[GreetingSpec, Status]):
        """A greeting."""
'''
TESTS = """
    import asyncio
    import json
    import os
    from pathlib import Path

    import pytest
    from greetings import Greeting, GreetingSpec
    from steersman.api.core_v1 import Namespace
    from steersman.meta import ObjectMeta

    RULE = {"apiGroups": ["example.com"], "resources": ["*"], "verbs": ["list"]}

    @pytest.mark.parametrize("number", range(6))
    def test_greets(number, envtest, envtest_namespace):
        async def greet():
            async with envtest.client() as client:
                metadata = ObjectMeta(name="same", namespace=envtest_namespace)
                await client.create(Greeting(metadata=metadata, spec=GreetingSpec(recipient="world")))
                user = await asyncio.to_thread(envtest.user, "same", rules=[RULE])
                async with envtest.client(user) as same:
                    seen = [o.key for o in (await same.list(Greeting)).items]
                return seen, [n.metadata.name for n in (await client.list(Namespace)).items]

        seen, namespaces = asyncio.run(greet())
        story = {
            "test": f"{os.environ['PYTEST_XDIST_WORKER']} {number}",
            "server": envtest.server,
            "directory": str(envtest.directory),
            "pids": envtest.control_plane.pids,
            "command": envtest.control_plane.apiserver_command(0, ""),
            "namespace": envtest_namespace,
            "seen": [[k.namespace, k.name] for k in seen],
            "namespaces": [n for n in namespaces if n.startswith("test-greets")],
        }
        with Path("stories").open("a") as stories:
            stories.write(json.dumps(story) + "\\n")
"""

HOOKS = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: refusing}
webhooks:
- name: refusing.example.com
  clientConfig: {service: {name: hooks, namespace: system, path: /validate}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
"""
REQUESTED = """
    import json
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    import pytest
    from steersman import ApiError, ObjectMeta, SyncClient
    from steersman.api.core_v1 import ConfigMap

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self):
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = {"message": f"{self.path} says no"}
            review["response"] = {"uid": review["request"]["uid"], "allowed": False, "status": status}
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    @pytest.fixture
    def listening(envtest):
        place = envtest.webhooks
        with HTTPServer((place.host, place.port), Refusing) as server:
            server.socket = place.ssl_context().wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield
            server.shutdown()
            thread.join()

    def test_is_refused(envtest, envtest_namespace, listening):
        refused = ConfigMap(metadata=ObjectMeta(name="a", namespace=envtest_namespace))
        with SyncClient(envtest.config) as client, pytest.raises(ApiError, match="/validate.* says no"):
            client.create(refused)
"""
RECORDED = """
    import pytest
    from steersman import ObjectKey, ObjectMeta, SyncClient
    from steersman.api.apply import core, meta
    from steersman.api.coordination_v1 import Lease
    from steersman.api.core_v1 import Secret
    from steersman.errors import Forbidden

    RULE = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "patch"]}

    def test_is_recorded(envtest, envtest_namespace):
        operator = envtest.user("operator", rules=[RULE])
        with SyncClient(operator.config) as client:
            client.create(Secret(metadata=ObjectMeta(name="a", namespace=envtest_namespace)))
            client.apply(core.Secret(metadata=meta.ObjectMeta(name="b", namespace=envtest_namespace)))
            with pytest.raises(Forbidden):
                client.list(Lease)
        with SyncClient(envtest.config) as client:
            client.get(Secret, ObjectKey(envtest_namespace, "a"))
"""


@pytest.fixture(scope="session")
def binaries() -> Path:
    """Find the binaries before pytester changes the home directory."""
    return find_binaries()


@pytest.fixture
def project(binaries: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(binaries))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyprojecttoml(OPTIONS)
    pytester.makepyfile(greetings=KIND, test_greetings=TESTS)
    return pytester


def test_parallel_workers_are_isolated(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("-p", "steersman_testing.pytest_plugin", "-n", "2", "--strict-markers")
    result.assert_outcomes(passed=6)
    stories = [json.loads(line) for line in (project.path / "stories").read_text().splitlines()]
    by_worker = {worker: [s for s in stories if s["test"].startswith(worker)] for worker in ("gw0", "gw1")}
    places = [{(s["server"], s["directory"], *s["pids"]) for s in told} for told in by_worker.values()]
    # Each worker has a separate server.
    assert [len(found) for found in places] == [1, 1]
    assert not {part for place in places[0] for part in place} & {part for place in places[1] for part in place}
    # Each test observes only its own namespace.
    assert len({s["namespace"] for s in stories}) == 6
    for story in stories:
        assert story["namespaces"] == [story["namespace"]]
        assert story["seen"] == [[story["namespace"], "same"]]
        assert {"--feature-gates=AllAlpha=false", "--audit-log-path=-"} <= set(story["command"])
        assert not Path(story["directory"]).exists()


def test_plugin_webhooks_option_calls_and_records(project: pytest.Pytester) -> None:
    project.makepyprojecttoml(
        OPTIONS + '    steersman_webhooks = ["hooks.yaml"]\n    steersman_rbac_user = ["operator"]\n'
    )
    (project.path / "hooks.yaml").write_text(HOOKS)
    project.makepyfile(test_asked=REQUESTED, test_recorded=RECORDED)
    arguments = (
        "-p",
        "steersman_testing.pytest_plugin",
        "--steersman-rbac",
        "rbac.json",
        "test_asked.py",
        "test_recorded.py",
    )
    project.runpytest_subprocess(*arguments).assert_outcomes(passed=2)
    # Requests of the administrator and names of created objects are not recorded.
    assert [str(a) for a in read_accesses(project.path / "rbac.json")] == [
        "create secrets",
        "patch secrets 'b'",
        "list leases.coordination.k8s.io",
    ]


def test_plugin_webhook_file_errors_are_reported_in_one_line(project: pytest.Pytester) -> None:
    project.makepyprojecttoml(OPTIONS + '    steersman_webhooks = ["hooks.yaml"]\n')
    (project.path / "hooks.yaml").write_text("kind: Service\n")
    result = project.runpytest_subprocess("-p", "steersman_testing.pytest_plugin", "-k", "0")
    result.assert_outcomes(errors=1, deselected=5)
    result.stdout.fnmatch_lines(["*hooks.yaml has no MutatingWebhookConfiguration or ValidatingWebhookConfiguration"])


@pytest.mark.requirement("design/integration-tests")
def test_the_documented_test_passes(project: pytest.Pytester) -> None:
    _write("test-an-operator", project)
    result = project.runpytest_subprocess("-p", "steersman_testing.pytest_plugin", "test_on_the_api_server.py")
    result.assert_outcomes(passed=1)


def test_plugin_uses_existing_cluster(
    project: pytest.Pytester, envtest: Envtest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USE_EXISTING_CLUSTER", "true")
    monkeypatch.setenv("KUBECONFIG", str(envtest.kubeconfig))
    for page in ("test-an-operator", "coming-from-controller-runtime"):
        _write(page, project)
        result = project.runpytest_subprocess("-p", "steersman_testing.pytest_plugin", "test_on_the_api_server.py")
        result.assert_outcomes(passed=1)


def _write(page: str, project: pytest.Pytester) -> None:
    for name, text in documented_files(f"how-to/{page}.md").items():
        (project.path / name).write_text(text)
