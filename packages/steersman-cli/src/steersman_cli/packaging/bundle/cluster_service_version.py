"""ClusterServiceVersion of a bundle. Source: OLM, ``operators.coreos.com/v1alpha1``."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any, cast

from steersman.errors import ConfigurationError
from steersman_cli.packaging.bundle.descriptors import humanize, spec_descriptors, status_descriptors
from steersman_cli.packaging.bundle.install_strategy import install_strategy
from steersman_cli.packaging.bundle.operator_info import OperatorInfo, package_name
from steersman_cli.packaging.bundle.settings import (
    ALL_NAMESPACES,
    INSTALL_MODES,
    BundleSettings,
    InstallMode,
    Provider,
)
from steersman_cli.packaging.bundle.webhooks import crds_with_conversion_webhook, webhook_definitions
from steersman_manifests.manifest_files import Manifest

_SEMANTIC_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")
_ICON_MEDIA_TYPES = {
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
}


def cluster_service_version(operator: OperatorInfo, settings: BundleSettings) -> Manifest:
    """Build the ClusterServiceVersion of ``operator``.

    Raises:
        ConfigurationError: the version is not semantic, a file of the settings is missing, conversion webhooks forbid
            an install mode, a webhook has a URL instead of a Service, or the image is missing.
    """
    version = operator.metadata.version
    if not _SEMANTIC_VERSION.fullmatch(version):
        raise ConfigurationError(
            f"version {version!r}: a bundle needs a semantic version such as 1.2.3 or 1.2.3-rc.1"
        )
    if not operator.image:
        raise ConfigurationError(
            "the bundle needs the operator's image: give --image, such as registry.example.com/shop:v1"
        )
    modes = _install_modes(operator, settings)
    spec = {
        "displayName": settings.display_name or humanize(package_name(operator, settings)),
        "description": _description(operator, settings),
        "version": version,
        "maturity": settings.maturity,
        "minKubeVersion": settings.min_kube_version,
        "keywords": list(operator.metadata.keywords or _keywords(operator)),
        "maintainers": [{"name": p.name, "email": p.email} for p in operator.metadata.maintainers if p.email],
        "provider": _provider(operator, settings),
        "links": [{"name": humanize(label), "url": url} for label, url in operator.metadata.urls.items()],
        "icon": _icon(operator, settings),
        "replaces": settings.replaces,
        "skips": list(settings.skips),
        "installModes": [{"type": mode, "supported": mode in modes} for mode in INSTALL_MODES],
        "install": {"strategy": "deployment", "spec": install_strategy(operator, modes)},
        "customresourcedefinitions": {"owned": _owned_crds(operator, settings)},
        "webhookdefinitions": webhook_definitions(operator.manifests),
    }
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{package_name(operator, settings)}.v{version.lower()}",
            # OLM replaces it by the namespace of the Subscription.
            "namespace": "placeholder",
            "annotations": _annotations(operator, settings),
            "labels": {
                **{f"operatorframework.io/arch.{name}": "supported" for name in settings.architectures},
                "operatorframework.io/os.linux": "supported",
            },
        },
        "spec": _merge({key: value for key, value in spec.items() if value}, settings.spec),
    }


# Metadata


def _annotations(operator: OperatorInfo, settings: BundleSettings) -> dict[str, str]:
    namespace = operator.manifests.namespace
    found = {
        "alm-examples": json.dumps([_without_namespace(s) for s in _samples(operator)], indent=2),
        "capabilities": settings.capabilities,
        "categories": ", ".join(settings.categories),
        "containerImage": operator.image,
        "description": operator.metadata.description,
        "olm.skipRange": settings.skip_range,
        "operatorframework.io/suggested-namespace": namespace,
        "repository": operator.metadata.urls.get("source") or operator.metadata.urls.get("repository", ""),
    }
    return {**{key: value for key, value in found.items() if value}, **settings.annotations}


def _samples(operator: OperatorInfo) -> list[Manifest]:
    served = {
        (f"{d['spec']['group']}/{v['name']}", d["spec"]["names"]["kind"])
        for d in operator.manifests.crds
        for v in d["spec"]["versions"]
        if v["served"]
    }
    return [s for s in operator.samples if (s.get("apiVersion"), s["kind"]) in served]


def _without_namespace(sample: Manifest) -> Manifest:
    metadata = {key: value for key, value in sample["metadata"].items() if key != "namespace"}
    return {**sample, "metadata": metadata}


def _description(operator: OperatorInfo, settings: BundleSettings) -> str:
    text = settings.description
    if text.endswith(".md"):
        return _read(operator, text).decode()
    return text or operator.metadata.description


def _keywords(operator: OperatorInfo) -> list[str]:
    return sorted({d["spec"]["names"]["kind"].lower() for d in operator.manifests.crds})


def _provider(operator: OperatorInfo, settings: BundleSettings) -> dict[str, str]:
    maintainers = operator.metadata.maintainers
    found = settings.provider or Provider(maintainers[0].name if maintainers else operator.domain)
    return {"name": found.name} | ({"url": found.url} if found.url else {})


def _icon(operator: OperatorInfo, settings: BundleSettings) -> list[dict[str, str]]:
    if not settings.icon:
        return []
    media = _ICON_MEDIA_TYPES.get(Path(settings.icon).suffix.lower())
    if media is None:
        raise ConfigurationError(
            f"[tool.steersman.bundle] icon: {settings.icon} is none of {', '.join(_ICON_MEDIA_TYPES)}"
        )
    return [{"base64data": base64.b64encode(_read(operator, settings.icon)).decode(), "mediatype": media}]


def _read(operator: OperatorInfo, name: str) -> bytes:
    try:
        return (operator.root / name).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"[tool.steersman.bundle] {name}: {error.strerror}") from error


def _install_modes(operator: OperatorInfo, settings: BundleSettings) -> tuple[InstallMode, ...]:
    """Return the supported install modes."""
    possible = ALL_NAMESPACES if crds_with_conversion_webhook(operator.manifests) else INSTALL_MODES
    selected = settings.install_modes or possible
    if not set(selected) <= set(possible):
        raise ConfigurationError(
            "[tool.steersman.bundle] install-modes: with conversion webhooks, OLM supports AllNamespaces only"
        )
    return selected


# Owned CRDs


def _owned_crds(operator: OperatorInfo, settings: BundleSettings) -> list[dict[str, Any]]:
    return [
        _owned_crd(operator, settings, definition["spec"], version)
        for definition in operator.manifests.crds
        for version in definition["spec"]["versions"]
        if version["served"]
    ]


def _owned_crd(
    operator: OperatorInfo, settings: BundleSettings, spec: dict[str, Any], version: dict[str, Any]
) -> dict[str, Any]:
    kind = spec["names"]["kind"]
    name = settings.display_names.get(kind) or humanize(kind)
    found = {
        "name": f"{spec['names']['plural']}.{spec['group']}",
        "version": version["name"],
        "kind": kind,
        "displayName": name,
        "description": version["schema"]["openAPIV3Schema"].get("description") or f"{name} of {spec['group']}.",
        "resources": _owned_resources(operator, spec["group"], kind),
        "specDescriptors": spec_descriptors(version),
        "statusDescriptors": status_descriptors(version),
    }
    return {key: value for key, value in found.items() if value}


def _owned_resources(operator: OperatorInfo, group: str, kind: str) -> list[dict[str, str]]:
    """Return the kinds that the controllers own."""
    controllers = [c for c in operator.manager.controllers if (c.resource.group, c.resource.kind) == (group, kind)]
    owned = dict.fromkeys(r for c in controllers for r in c.owned_resources)
    definitions = {d["metadata"]["name"] for d in operator.manifests.crds}
    return [
        {
            "kind": r.kind,
            "name": name if (name := f"{r.plural}.{r.group}") in definitions else "",
            "version": r.version,
        }
        for r in owned
    ]


def _merge(spec: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Merge ``overrides`` into ``spec``: tables recursively, other values by replacement."""
    found = dict(spec)
    for key, value in overrides.items():
        current = found.get(key)
        both_tables = isinstance(current, dict) and isinstance(value, dict)
        found[key] = _merge(cast("dict[str, Any]", current), cast("dict[str, Any]", value)) if both_tables else value
    return found
