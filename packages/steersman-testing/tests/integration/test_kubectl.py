"""kubectl has the same output on both servers."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shlex
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from framework_support.documented_code import DOCS
from framework_support.kubectl_runner import Kubectl, KubectlOutput
from steersman_testing import InMemoryApiServer
from steersman_testing.envtest import Envtest
from steersman_testing.serving import serve

_numbers = itertools.count()
PAGE = DOCS / "how-to/use-kubectl-without-a-cluster.md"
MANIFESTS = {
    "shop.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: shop}}
data: {a: "1", b: "2"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: In, values: [front, back]}]}
  template:
    metadata: {labels: {app: web, tier: front}}
    spec: {containers: [{name: web, image: "nginx:1"}, {name: log, image: "busybox:2"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80}, {name: https, port: 443}]}
---
apiVersion: v1
kind: Pod
metadata: {name: p, finalizers: [example.com/held]}
spec: {containers: [{name: web, image: "nginx:1"}]}
""",
    "widgets.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.kubectl.example.com}
spec:
  group: kubectl.example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, shortNames: [by]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Colour, type: string, jsonPath: .spec.colour}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: First, type: string, jsonPath: '.spec.marks[0]'}
    - {name: Marks, type: string, jsonPath: .spec.marks}
    - {name: Lit, type: boolean, jsonPath: .spec.lit}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas, priority: 1}
    - {name: Since, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A thing that floats.
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [colour]
            properties:
              colour: {type: string, description: Seen from afar., enum: [red, green]}
              replicas: {type: integer, default: 1, minimum: 0}
              lit: {type: boolean}
              marks: {type: array, items: {type: string}}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
""",
    "widget.yaml": """
apiVersion: kubectl.example.com/v1
kind: Widget
metadata: {name: b}
spec: {colour: red, lit: true, marks: [north, "1"]}
""",
    "misspelt.yaml": """
apiVersion: kubectl.example.com/v1
kind: Widget
metadata: {name: c}
spec: {colour: red, lapms: 3}
""",
    "invalid.yaml": """
apiVersion: kubectl.example.com/v1
kind: Widget
metadata: {name: c}
spec: {colour: blue}
""",
}

SESSIONS = {
    "manifests": """
        apply -f shop.yaml
        get configmaps,deployments,services,pods -o wide
        get deployment web -o yaml
        apply -f shop.yaml
        scale deployment web --replicas 5
        diff -f shop.yaml
        set image deployment/web web=nginx:3
        apply -f shop.yaml
        get deployments -o wide --show-labels
        label configmap settings tier=back
        label configmap settings tier=front
        label configmap settings tier=front --overwrite
        annotate configmap settings note=hello
        patch configmap settings -p '{"data":{"c":"3"}}'
        patch configmap settings --type merge -p '{"data":{"a":null}}'
        patch configmap settings --type json -p '[{"op":"remove","path":"/data/b"}]'
        patch deployment web -p '{"spec":{"template":{"spec":{"containers":[{"name":"log","image":"busybox:3"}]}}}}'
        get configmap settings -o jsonpath={.data}
        get deployment web -o jsonpath={.spec.template.spec.containers[*].image}
        describe configmap settings
        describe service web
        get configmap none
        get nothing
        delete -f shop.yaml --wait=false
        get configmaps,pods
        patch pod p --type merge -p '{"metadata":{"finalizers":null}}'
        wait --for=delete pod/p --timeout=20s
        get pods
    """,
    "edit": """
        create configmap edited --from-literal a=before
        edit configmap edited
        get configmap edited -o jsonpath={.data}
    """,
    "server-side apply": """
        apply --server-side -f shop.yaml
        apply --server-side -f shop.yaml
        scale deployment web --replicas 3
        apply --server-side -f shop.yaml
        apply --server-side --force-conflicts -f shop.yaml
        apply --server-side --field-manager rival -f shop.yaml --dry-run=server
        get configmap settings -o jsonpath={.metadata.managedFields[*].manager}
        diff --server-side -f shop.yaml
        delete -f shop.yaml --wait=false
        patch pod p --type merge -p '{"metadata":{"finalizers":null}}'
    """,
    "custom kinds": """
        apply -f widgets.yaml
        wait --for=condition=Established crd/widgets.kubectl.example.com --timeout=20s
        apply -f widget.yaml
        get by
        get widgets.kubectl.example.com b -o wide
        get widget b --no-headers
        scale widget b --replicas=3
        patch by b --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
        wait --for=condition=Ready widget/b --timeout=20s
        wait --for=jsonpath={.spec.replicas}=3 widget/b --timeout=20s
        get widgets -o wide
        describe widget b
        apply -f misspelt.yaml
        apply -f misspelt.yaml --validate=ignore
        apply -f invalid.yaml
        create -f widget.yaml
        explain widget
        explain widget.spec
        explain widgets.spec.colour
        explain widget --recursive
        explain widget.nothing
        delete widgets --all
        get widgets
    """,
    "generated objects": """
        create configmap made --from-literal a=b
        create secret generic made --from-literal p=q
        create serviceaccount made
        create deployment made --image nginx:1 --replicas 0 --port 80
        create job made --image busybox:1 -- date
        create cronjob made --image busybox:1 --schedule '0 * * * *' -- date
        create role made --verb get --resource pods
        create rolebinding made --role made --serviceaccount default:made --user ann --group orders
        create poddisruptionbudget made --selector app=web --min-available 50%
        create service clusterip made --tcp 80:8080
        create ingress made --rule a.example.com/=made:80,tls=cert
        create quota made --hard cpu=1,pods=2
        get configmaps/made secrets/made serviceaccounts/made deployments/made jobs/made cronjobs/made -o wide
        get roles/made rolebindings/made poddisruptionbudgets/made services/made ingresses/made quota/made -o wide
        get deployment made -o yaml
        get cronjob made -o yaml
        get service made -o yaml
        create configmap made --from-literal a=b
        delete job made
        delete configmap/made secret/made serviceaccount/made
    """,
    "reading": """
        get --raw /readyz
        get --raw /api/v1/namespaces/default/configmaps/none
        get namespaces default
        auth can-i create pods
        auth can-i create pods --as ann
        explain deployment.spec.strategy
        explain pod --recursive
        explain service.spec.ports
        events
        get all --selector app=none
        get configmaps -o name --selector app=none
        get configmaps --field-selector spec.nothing=1
        get pods --chunk-size 1
        logs none
    """,
}
_EDITOR = "sed -i s/before/after/"

pytestmark = pytest.mark.xdist_group("kubectl")


@pytest.fixture(scope="module")
def envtest() -> Generator[Envtest]:
    """A separate server.

    A server with hundreds of deleted definitions discovers new ones minutes late.
    """
    with Envtest.start() as environment:
        yield environment


@asynccontextmanager
async def in_memory(home: Path, namespace: str) -> AsyncGenerator[Kubectl]:
    server = InMemoryApiServer(controllers=False)
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    async with serve(server) as endpoint:
        kubeconfig = home / "kubeconfig"
        kubeconfig.write_text(endpoint.kubeconfig)
        yield Kubectl(kubeconfig, home, namespace)


@asynccontextmanager
async def on_the_real_server(home: Path, namespace: str, envtest: Envtest) -> AsyncGenerator[Kubectl]:
    kubectl = Kubectl(envtest.kubeconfig, home, namespace)
    await kubectl("create", "namespace", namespace)
    yield kubectl


async def run_session(kubectl: Kubectl, home: Path, session: str) -> list[tuple[str, KubectlOutput]]:
    for name, text in MANIFESTS.items():
        (home / name).write_text(text)
    outputs: list[tuple[str, KubectlOutput]] = []
    for command in map(str.strip, session.strip().splitlines()):
        outputs.append((command, (await kubectl(*shlex.split(command), editor=_EDITOR)).stable))
        if "condition=Established" in command:
            await wait_until_explained(kubectl, "widgets.kubectl.example.com")
    return outputs


async def wait_until_explained(kubectl: Kubectl, kind: str) -> None:
    """Wait until kubectl explains a kind.

    Discovery may be later than serving.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + 60
    while (output := await kubectl("explain", kind)).code:
        assert loop.time() < end, output.text
        await asyncio.sleep(0.1)


@pytest.mark.requirement("programming/kubectl")
@pytest.mark.parametrize("session", SESSIONS)
async def test_kubectl_output_equals_real_server(session: str, envtest: Envtest, tmp_path: Path) -> None:
    for name in ("memory", "real"):
        (tmp_path / name).mkdir()
    # Objects of one scenario, such as quotas, do not affect the next one.
    namespace = f"kubectl-{os.getpid()}-{next(_numbers)}"
    async with in_memory(tmp_path / "memory", namespace) as kubectl:
        ours = await run_session(kubectl, tmp_path / "memory", SESSIONS[session])
    async with on_the_real_server(tmp_path / "real", namespace, envtest) as kubectl:
        theirs = await run_session(kubectl, tmp_path / "real", SESSIONS[session])
    for (command, mine), (_, expected) in zip(ours, theirs, strict=True):
        assert mine == expected, f"kubectl {command}"


async def test_kubectl_page_shows_real_output(tmp_path: Path) -> None:
    page = PAGE.read_text()
    for name, manifest in re.findall(r'```yaml title="(.*?)"\n(.*?)```', page, re.DOTALL):
        (tmp_path / name).write_text(manifest)
    server = InMemoryApiServer()
    server.load(yaml.safe_load((tmp_path / "lights.yaml").read_text()))
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    called = [found for block in blocks for found in re.split(r"^\$ kubectl ", block, flags=re.MULTILINE)[1:]]
    assert len(called) > 10
    async with serve(server) as endpoint:
        (tmp_path / "kubeconfig").write_text(endpoint.kubeconfig)
        kubectl = Kubectl(tmp_path / "kubeconfig", tmp_path, "default")
        for command, _, expected in (found.partition("\n") for found in called):
            output = (await kubectl(*shlex.split(command))).stable.text
            assert output.rstrip("\n") == KubectlOutput(0, expected).stable.text.rstrip("\n"), command


async def test_kubectl_watch_receives_foreign_changes(tmp_path: Path) -> None:
    server = InMemoryApiServer()
    async with serve(server) as endpoint:
        (tmp_path / "kubeconfig").write_text(endpoint.kubeconfig)
        kubectl = Kubectl(tmp_path / "kubeconfig", tmp_path, "default")
        watching = await kubectl.start("get", "configmaps", "--watch", "--output-watch-events", "--no-headers")
        assert watching.stdout is not None
        try:
            for name in ("a", "b"):
                await kubectl("create", "configmap", name)
                line = await asyncio.wait_for(watching.stdout.readline(), 30)
                assert line.split()[:2] == [b"ADDED", name.encode()]
        finally:
            watching.kill()
            await watching.wait()


async def test_kubectl_token_is_accepted_over_tls(tmp_path: Path) -> None:
    server = InMemoryApiServer()
    async with serve(server, tls=True) as endpoint:
        (tmp_path / "kubeconfig").write_text(endpoint.kubeconfig)
        kubectl = Kubectl(tmp_path / "kubeconfig", tmp_path, "default")
        await kubectl("create", "serviceaccount", "tester")
        token = (await kubectl("create", "token", "tester")).text.strip()
        output = await kubectl("auth", "whoami", "--token", token, "-o", "jsonpath={.status.userInfo.username}")
        assert output == KubectlOutput(0, "system:serviceaccount:default:tester")
        assert (await kubectl("auth", "whoami", "--token", "guessed")).code == 1


@pytest.mark.requirement("user/finalizer")
async def test_kubectl_delete_waits_for_finalizers(tmp_path: Path) -> None:
    server = InMemoryApiServer()
    async with serve(server) as endpoint:
        (tmp_path / "kubeconfig").write_text(endpoint.kubeconfig)
        kubectl = Kubectl(tmp_path / "kubeconfig", tmp_path, "default")
        held = {"name": "held", "namespace": "default", "finalizers": ["example.com/held"]}
        server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})
        deleting = await kubectl.start("delete", "configmap", "held", "--wait")
        assert deleting.stdout is not None
        assert b"deleted" in await asyncio.wait_for(deleting.stdout.readline(), 30)
        assert deleting.returncode is None
        await kubectl("patch", "configmap", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert await asyncio.wait_for(deleting.wait(), 30) == 0
