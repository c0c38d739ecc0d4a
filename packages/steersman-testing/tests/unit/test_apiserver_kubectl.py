"""Loading of the package ``kubectl`` on demand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from steersman_testing.apiserver import kubectl
from steersman_testing.apiserver.discovery.documents import OpenApiSupport
from steersman_testing.apiserver.requests.bodies import ProtobufSupport
from steersman_testing.apiserver.subresources import TokenSupport
from steersman_testing.apiserver.tables import TableSupport

# Pyright checks that the package implements the protocols of its callers.
SUPPORT: tuple[OpenApiSupport, ProtobufSupport, TableSupport, TokenSupport] = (kubectl, kubectl, kubectl, kubectl)

PROGRAM = """
import sys
from steersman.client.transport import HttpRequest
from steersman_testing import InMemoryApiServer

server = InMemoryApiServer()
server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}})
path = "/api/v1/namespaces/default/configmaps"
assert server.handle(HttpRequest(method="GET", path=path, accept=sys.argv[1])).status == 200
print("steersman_testing.apiserver.kubectl" in sys.modules)
"""


@pytest.mark.parametrize(
    ("accept", "expected"), [("application/json", "False"), ("application/json;as=Table;v=v1;g=meta.k8s.io", "True")]
)
def test_kubectl_package_is_imported_on_demand(accept: str, expected: str) -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM, accept], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == expected
