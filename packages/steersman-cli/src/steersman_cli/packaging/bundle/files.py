"""A bundle: the files that OLM installs an operator by. Source: OLM, "Operator Bundle Format", ``registry+v1``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from steersman.meta.documents import as_text
from steersman.meta.manifests import Manifest
from steersman_cli.packaging.bundle.operator import Operator, package
from steersman_cli.packaging.bundle.service_version import service_version
from steersman_cli.packaging.bundle.settings import BundleSettings
from steersman_cli.packaging.bundle.webhooks import lost, services

_PREFIX = "operators.operatorframework.io"
# What a ClusterServiceVersion says in its own way, or OLM makes.
_SAID = (
    "CustomResourceDefinition",
    "Deployment",
    "MutatingWebhookConfiguration",
    "Namespace",
    "ValidatingWebhookConfiguration",
)
# Source: github.com/operator-framework/operator-registry, pkg/lib/bundle/supported_resources.go.
_SUPPORTED = (
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PodMonitor",
    "PriorityClass",
    "PrometheusRule",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
)
_SCORECARD = {
    "basic": ("basic-check-spec",),
    "olm": (
        "olm-bundle-validation",
        "olm-crds-have-validation",
        "olm-crds-have-resources",
        "olm-spec-descriptors",
        "olm-status-descriptors",
    ),
}


@dataclass(frozen=True)
class Bundle:
    """A bundle.

    Attributes:
        files: texts by their paths below the bundle's directory.
        containerfile: builds its image, with that directory as the context.
        notes: what config/ has and no bundle can say.
    """

    files: dict[str, str]
    containerfile: str
    notes: tuple[str, ...]


def bundle(operator: Operator, settings: BundleSettings) -> Bundle:
    """The bundle of ``operator``. Raises ConfigurationError: as ``service_version``."""
    name = package(operator, settings)
    files: dict[str, Any] = {
        f"manifests/{name}.clusterserviceversion.yaml": service_version(operator, settings),
        "metadata/annotations.yaml": {"annotations": _annotations(name, settings)},
        "tests/scorecard/config.yaml": _scorecard(settings.scorecard_image),
    }
    for definition in operator.installation.definitions:
        spec = definition["spec"]
        files[f"manifests/{spec['group']}_{spec['names']['plural']}.yaml"] = definition
    notes = [
        f"{found}: OLM has its own, from the namespaces that it installs for" for found in lost(operator.installation)
    ]
    namespace = operator.installation.namespace
    for manifest in _others(operator):
        called = f"{manifest['kind']} {manifest['metadata']['name']}"
        if any(s.get("namespace") == namespace for s in manifest.get("subjects") or ()):
            notes.append(f"{called} is for accounts in {namespace}, wherever OLM installs")
        if manifest["kind"] in _SUPPORTED:
            files[f"manifests/{_file(manifest)}"] = _without_namespace(manifest)
        else:
            notes.append(f"{called}: OLM installs none of that kind")
    texts = {path: as_text(content) for path, content in files.items()}
    return Bundle(texts, _containerfile(_annotations(name, settings)), tuple(notes))


def _others(operator: Operator) -> Iterator[Manifest]:
    """What goes into the bundle as it is."""
    installation = operator.installation
    said = [id(installation.service_account), *(id(m) for pair in installation.granted() for m in pair)]
    fronts = services(installation)
    for manifest in installation.manifests:
        is_front = manifest["kind"] == "Service" and manifest["metadata"]["name"] in fronts
        if manifest["kind"] not in _SAID and id(manifest) not in said and not is_front:
            yield manifest


def _file(manifest: Manifest) -> str:
    """As operator-sdk names them."""
    version = manifest["apiVersion"].replace("/", "_")
    return f"{manifest['metadata']['name']}_{version}_{manifest['kind'].lower()}.yaml"


def _without_namespace(manifest: Manifest) -> Manifest:
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    return {**manifest, "metadata": metadata}


def _annotations(name: str, settings: BundleSettings) -> dict[str, str]:
    return {
        f"{_PREFIX}.bundle.mediatype.v1": "registry+v1",
        f"{_PREFIX}.bundle.manifests.v1": "manifests/",
        f"{_PREFIX}.bundle.metadata.v1": "metadata/",
        f"{_PREFIX}.bundle.package.v1": name,
        f"{_PREFIX}.bundle.channels.v1": ",".join(settings.channels),
        f"{_PREFIX}.bundle.channel.default.v1": settings.default_channel or settings.channels[0],
        f"{_PREFIX}.test.mediatype.v1": "scorecard+v1",
        f"{_PREFIX}.test.config.v1": "tests/scorecard/",
    }


def _scorecard(image: str) -> Manifest:
    storage: dict[str, Any] = {"spec": {"mountPath": {}}}
    tests: list[dict[str, Any]] = [
        {
            "entrypoint": ["scorecard-test", test],
            "image": image,
            "labels": {"suite": suite, "test": f"{test}-test"},
            "storage": storage,
        }
        for suite, names in _SCORECARD.items()
        for test in names
    ]
    return {
        "apiVersion": "scorecard.operatorframework.io/v1alpha3",
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": True, "tests": tests}],
        "storage": storage,
    }


def _containerfile(annotations: dict[str, str]) -> str:
    labels = "\n".join(f"LABEL {key}={value}" for key, value in annotations.items())
    return f"""\
# Generated by `steersman bundle`. Its context is the bundle's directory.
FROM scratch
{labels}
COPY manifests /manifests/
COPY metadata /metadata/
COPY tests/scorecard /tests/scorecard/
"""
