"""Pods reach the object store by TLS, and notice its faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devcluster import layout, oci
from devcluster.errors import CommandFailed
from devcluster.progress import Progress
from devcluster.store import ObjectStore, cluster_store, manifests
from devcluster.target import Target
from framework_support.cluster_fixtures import ours, own_namespace, toolbox

__all__ = ["ours"]

pytestmark = [pytest.mark.disruptive, pytest.mark.addresses]

NAMESPACE = "e2e-devcluster-store"
NODES = [node.name for node in layout.NODES[: layout.DEFAULT_NODES]]
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeSelector: {{kubernetes.io/hostname: {name}}}
  terminationGracePeriodSeconds: 1
  securityContext: {{runAsUser: 10001, runAsGroup: 10001, runAsNonRoot: true}}
  containers:
  - name: box
    image: {image}
    args: [pause]
    env: [{{name: SSL_CERT_FILE, value: /ca/ca.crt}}]
    volumeMounts: [{{name: ca, mountPath: /ca}}]
  volumes: [{{name: ca, secret: {{secretName: {secret}}}}}]
"""


@pytest.fixture(scope="module")
def store(ours: Target) -> Iterator[ObjectStore]:
    """Start the store, and on each node a pod."""
    existed = cluster_store.DIRECTORY.exists()
    running = cluster_store.start(Progress(), volume_mebibytes=cluster_store.MIN_VOLUME_MEBIBYTES)
    with own_namespace(ours, NAMESPACE):
        secrets = [
            each for each in yaml.safe_load_all(manifests.render(running, NAMESPACE)) if each["kind"] == "Secret"
        ]
        ours.apply(yaml.safe_dump_all(secrets), NAMESPACE)
        pods = [POD.format(name=node, image=oci.TOOLBOX, secret=manifests.CA_SECRET) for node in NODES]
        ours.apply("---".join(pods), NAMESPACE)
        ours.kubectl("wait", "pod", "--all", f"--namespace={NAMESPACE}", "--for=condition=Ready", "--timeout=60s")
        yield running
    if not existed:
        cluster_store.remove()


def health(target: Target, store: ObjectStore, node: str) -> str:
    """Return the response of the store's health check to a pod."""
    return toolbox(target, NAMESPACE, node, "get", f"{store.endpoint}/healthz")


@pytest.mark.parametrize("node", NODES)
def test_pod_reaches_store_by_name(ours: Target, store: ObjectStore, node: str) -> None:
    assert health(ours, store, node) == "OK"


def test_stopped_store_refuses_pods(ours: Target, store: ObjectStore) -> None:
    with store.stopped(), pytest.raises(CommandFailed, match="connection refused"):
        health(ours, store, NODES[0])
    assert health(ours, store, NODES[0]) == "OK"


def test_blackhole_hangs_pods(ours: Target, store: ObjectStore) -> None:
    with store.blackholed(), pytest.raises(CommandFailed, match="context deadline exceeded"):
        health(ours, store, NODES[0])
    assert health(ours, store, NODES[0]) == "OK"


def test_filled_volume_spares_the_disk_of_the_host(store: ObjectStore) -> None:
    store.fill()
    assert store.usage().free < 1 << 20
    image = Path(f"{store.directory.volume}.img")
    assert image.stat().st_blocks * 512 < store.usage().used / 2
    store.end_faults()
    assert store.usage().free > 100 << 20


def test_store_has_no_default_route(store: ObjectStore) -> None:
    routes = Path(f"/proc/{store.server.pid}/net/route").read_text().splitlines()[1:]
    destinations = {line.split()[1] for line in routes}
    assert destinations
    assert "00000000" not in destinations


def test_store_outlives_its_proxy(ours: Target, store: ObjectStore) -> None:
    store.proxy.terminate(grace=0)
    assert cluster_store.load() is None
    restarted = cluster_store.start(Progress())
    assert restarted.credentials == store.credentials
    assert health(ours, restarted, NODES[0]) == "OK"
