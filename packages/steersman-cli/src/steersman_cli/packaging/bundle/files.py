"""Files of an OLM bundle. Source: OLM, "Operator Bundle Format", ``registry+v1``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from steersman_cli.packaging.bundle.cluster_service_version import cluster_service_version
from steersman_cli.packaging.bundle.operator_info import OperatorInfo, package_name
from steersman_cli.packaging.bundle.settings import BundleSettings
from steersman_cli.packaging.bundle.webhooks import unsupported_fields, webhook_service_names
from steersman_manifests.manifest_files import Manifest
from steersman_manifests.yaml_codec import dump_yaml

_ANNOTATION_PREFIX = "operators.operatorframework.io"
# Kinds that the ClusterServiceVersion expresses or OLM creates.
_EXPRESSED_BY_CSV = (
    "CustomResourceDefinition",
    "Deployment",
    "MutatingWebhookConfiguration",
    "Namespace",
    "ValidatingWebhookConfiguration",
)
# Source: github.com/operator-framework/operator-registry, pkg/lib/bundle/supported_resources.go.
_SUPPORTED_KINDS = (
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
_SCORECARD_TESTS = {
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
    """An OLM bundle.

    Attributes:
        files: texts by path below the directory of the bundle.
        containerfile: Containerfile of the bundle image; its context is that directory.
        warnings: parts of config/ that a bundle cannot contain.
    """

    files: dict[str, str]
    containerfile: str
    warnings: tuple[str, ...]


def build_bundle(operator: OperatorInfo, settings: BundleSettings) -> Bundle:
    """Build the bundle of ``operator``.

    Raises:
        ConfigurationError: see ``cluster_service_version``.
    """
    name = package_name(operator, settings)
    files: dict[str, Any] = {
        f"manifests/{name}.clusterserviceversion.yaml": cluster_service_version(operator, settings),
        "metadata/annotations.yaml": {"annotations": _annotations(name, settings)},
        "tests/scorecard/config.yaml": _scorecard(settings.scorecard_image),
    }
    for definition in operator.manifests.crds:
        spec = definition["spec"]
        files[f"manifests/{spec['group']}_{spec['names']['plural']}.yaml"] = definition
    warnings = [
        f"{found}: OLM sets its own from the installed namespaces" for found in unsupported_fields(operator.manifests)
    ]
    namespace = operator.manifests.namespace
    for manifest in _extra_manifests(operator):
        object_name = f"{manifest['kind']} {manifest['metadata']['name']}"
        if any(s.get("namespace") == namespace for s in manifest.get("subjects") or ()):
            warnings.append(
                f"{object_name} refers to accounts in {namespace}, even if OLM installs into another namespace"
            )
        if manifest["kind"] in _SUPPORTED_KINDS:
            files[f"manifests/{_file_name(manifest)}"] = _without_namespace(manifest)
        else:
            warnings.append(f"{object_name}: OLM does not install this kind")
    texts = {path: dump_yaml(content) for path, content in files.items()}
    return Bundle(texts, _containerfile(_annotations(name, settings)), tuple(warnings))


def _extra_manifests(operator: OperatorInfo) -> Iterator[Manifest]:
    """Yield the manifests that the bundle contains unchanged."""
    installation = operator.manifests
    handled = [id(installation.service_account), *(id(m) for pair in installation.role_bindings() for m in pair)]
    webhook_services = webhook_service_names(installation)
    for manifest in installation.manifests:
        is_webhook_service = manifest["kind"] == "Service" and manifest["metadata"]["name"] in webhook_services
        if manifest["kind"] not in _EXPRESSED_BY_CSV and id(manifest) not in handled and not is_webhook_service:
            yield manifest


def _file_name(manifest: Manifest) -> str:
    # The file names of operator-sdk.
    version = manifest["apiVersion"].replace("/", "_")
    return f"{manifest['metadata']['name']}_{version}_{manifest['kind'].lower()}.yaml"


def _without_namespace(manifest: Manifest) -> Manifest:
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    return {**manifest, "metadata": metadata}


def _annotations(name: str, settings: BundleSettings) -> dict[str, str]:
    return {
        f"{_ANNOTATION_PREFIX}.bundle.mediatype.v1": "registry+v1",
        f"{_ANNOTATION_PREFIX}.bundle.manifests.v1": "manifests/",
        f"{_ANNOTATION_PREFIX}.bundle.metadata.v1": "metadata/",
        f"{_ANNOTATION_PREFIX}.bundle.package.v1": name,
        f"{_ANNOTATION_PREFIX}.bundle.channels.v1": ",".join(settings.channels),
        f"{_ANNOTATION_PREFIX}.bundle.channel.default.v1": settings.default_channel or settings.channels[0],
        f"{_ANNOTATION_PREFIX}.test.mediatype.v1": "scorecard+v1",
        f"{_ANNOTATION_PREFIX}.test.config.v1": "tests/scorecard/",
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
        for suite, names in _SCORECARD_TESTS.items()
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
# Generated by `steersman bundle`. The build context is the directory of the bundle.
FROM scratch
{labels}
COPY manifests /manifests/
COPY metadata /metadata/
COPY tests/scorecard /tests/scorecard/
"""
