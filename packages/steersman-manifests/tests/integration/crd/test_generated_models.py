"""Models of well-known projects: their definitions round-trip."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from framework_support.crd_foreign import KINDS, foreign
from framework_support.crd_foreign.packages import kinds_of, ruff, written
from framework_support.crd_twins.normal import differences, same_to_the_server
from steersman.api.core_v1 import Affinity, SecretKeySelector
from steersman.meta import Condition, Object, decode_builtins, find_condition, to_builtins
from steersman_manifests.crd import definition, violations

# A fresh checkout builds controller-gen first.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("controller-gen")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(foreign().values(), tmp_path_factory.mktemp("foreign"), "foreign")


def generated_class(kind: str) -> type[Object]:
    return kinds_of(foreign()[kind], "foreign")[0]


def test_models_cover_all_kinds() -> None:
    assert set(foreign()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_models_round_trip_to_crd(place: Path, kind: str) -> None:
    manifest = foreign()[kind]
    again = definition(*kinds_of(manifest, "foreign"))
    assert list(differences(same_to_the_server(manifest), same_to_the_server(again))) == []


def test_generated_models_are_formatted_and_lint_free(place: Path) -> None:
    assert ruff(place, 88) == ""


CERTIFICATE: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "secretName": "web-tls",
        "dnsNames": ["web.example.com"],
        "issuerRef": {"name": "letsencrypt", "kind": "ClusterIssuer"},
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "isCA": False,
    },
    "status": {"revision": 1, "notAfter": "2026-05-01T00:00:00Z", "conditions": []},
}
ROUTE: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop", "generation": 3},
    "spec": {
        "parentRefs": [{"name": "front", "group": "gateway.networking.k8s.io", "kind": "Gateway"}],
        "hostnames": ["web.example.com"],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [{"name": "web", "port": 80, "weight": 1, "group": "", "kind": "Service"}],
            }
        ],
    },
    "status": {
        "parents": [
            {
                "controllerName": "example.com/gateway",
                "parentRef": {"name": "front"},
                "conditions": [
                    {
                        "type": "Accepted",
                        "status": "True",
                        "reason": "Accepted",
                        "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }
                ],
            }
        ]
    },
}
PROMETHEUS: dict[str, Any] = {
    "metadata": {"name": "main", "namespace": "monitoring"},
    "spec": {
        "replicas": 2,
        "retention": "15d",
        "resources": {"requests": {"memory": "400Mi"}},
        "affinity": {"podAntiAffinity": {}},
        "serviceMonitorSelector": {"matchLabels": {"team": "shop"}},
        "remoteWrite": [
            {
                "url": "https://example.com/write",
                "basicAuth": {
                    "username": {"name": "remote", "key": "user"},
                    "password": {"name": "remote", "key": "p"},
                },
            }
        ],
        "storage": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "10Gi"}}}}},
    },
}


@pytest.mark.parametrize(
    ("kind", "wire"), [("Certificate", CERTIFICATE), ("HTTPRoute", ROUTE), ("Prometheus", PROMETHEUS)]
)
def test_models_decode_and_validate_objects(place: Path, kind: str, wire: dict[str, Any]) -> None:
    found = decode_builtins(wire, generated_class(kind))
    assert found.metadata.name == wire["metadata"]["name"]
    assert violations(found) == ()
    assert to_builtins(found)["spec"].keys() <= wire["spec"].keys()


def test_models_reuse_builtin_classes(place: Path) -> None:
    prometheus: Any = decode_builtins(PROMETHEUS, generated_class("Prometheus"))
    assert isinstance(prometheus.spec.affinity, Affinity)
    assert isinstance(prometheus.spec.remote_write[0].basic_auth.password, SecretKeySelector)
    route: Any = decode_builtins(ROUTE, generated_class("HTTPRoute"))
    accepted = find_condition(route.status.parents[0].conditions, "Accepted")
    assert isinstance(accepted, Condition) and accepted.status == "True"


def test_models_have_defaults_of_definition(place: Path) -> None:
    module = import_module("foreign.gateway_networking_k8s_io_v1")
    path = module.HTTPRouteSpecRulesMatchesPath()
    assert (path.type, path.value) == ("PathPrefix", "/")


def test_generated_types_report_violations(place: Path) -> None:
    wrong = json.loads(json.dumps(ROUTE))
    wrong["spec"]["rules"][0]["backendRefs"][0]["port"] = 70000
    assert violations(decode_builtins(wrong, generated_class("HTTPRoute"))) == (
        ".spec.rules[0].backendRefs[0].port must be at most 65535, but is 70000",
    )


def test_generated_apply_types_send_set_fields(place: Path) -> None:
    apply: Any = import_module("foreign.apply.cert_manager_io_v1")
    issuer = apply.CertificateSpecIssuerRef(name="letsencrypt")
    spec = apply.CertificateSpec(secret_name="web-tls", issuer_ref=issuer, is_ca=False)
    assert to_builtins(spec) == {"secretName": "web-tls", "issuerRef": {"name": "letsencrypt"}, "isCA": False}
    assert apply.Certificate.read_type is generated_class("Certificate")


def test_generated_module_imports_quickly(place: Path) -> None:
    program = (
        "import time, steersman.api.core_v1, steersman.api.meta_v1; begun = time.process_time();"
        "import foreign.monitoring_coreos_com_v1; print(time.process_time() - begun)"
    )
    # Python compiles the module on the first import.
    _, seconds = (run_python(program, place.parent) for _ in range(2))
    # 7 kinds, 200 structs: some 30 ms.
    assert seconds < 0.5


def run_python(program: str, directory: Path) -> float:
    environment = {"PYTHONPATH": ":".join([str(directory), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)
