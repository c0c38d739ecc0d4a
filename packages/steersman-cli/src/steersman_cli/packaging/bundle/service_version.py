"""A ClusterServiceVersion. Source: OLM's ``operators.coreos.com/v1alpha1``."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any, cast

from steersman.errors import ConfigurationError
from steersman.meta.manifests import Manifest
from steersman_cli.packaging.bundle.descriptors import spec_descriptors, status_descriptors, words
from steersman_cli.packaging.bundle.operator import Operator, package
from steersman_cli.packaging.bundle.settings import (
    ALL_NAMESPACES,
    INSTALL_MODES,
    BundleSettings,
    InstallMode,
    Provider,
)
from steersman_cli.packaging.bundle.strategy import strategy
from steersman_cli.packaging.bundle.webhooks import converted, webhook_definitions

_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")
_ICONS = {
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
}


def service_version(operator: Operator, settings: BundleSettings) -> Manifest:
    """The ClusterServiceVersion of ``operator``.

    Raises:
        ConfigurationError: the version is none of semantic versioning, the settings name a file that is not there, or
            an install mode that conversions do not allow; a webhook is called by a url; or no image is named.
    """
    version = operator.about.version
    if not _VERSION.fullmatch(version):
        raise ConfigurationError(
            f"version {version!r}: a bundle needs a semantic version such as 1.2.3 or 1.2.3-rc.1"
        )
    if not operator.image:
        raise ConfigurationError(
            "a bundle names the operator's image: give --image, such as registry.example.com/shop:v1"
        )
    modes = _install_modes(operator, settings)
    spec = {
        "displayName": settings.display_name or words(package(operator, settings)),
        "description": _description(operator, settings),
        "version": version,
        "maturity": settings.maturity,
        "minKubeVersion": settings.min_kube_version,
        "keywords": list(operator.about.keywords or _keywords(operator)),
        "maintainers": [{"name": p.name, "email": p.email} for p in operator.about.people if p.email],
        "provider": _provider(operator, settings),
        "links": [{"name": words(label), "url": url} for label, url in operator.about.urls.items()],
        "icon": _icon(operator, settings),
        "replaces": settings.replaces,
        "skips": list(settings.skips),
        "installModes": [{"type": mode, "supported": mode in modes} for mode in INSTALL_MODES],
        "install": {"strategy": "deployment", "spec": strategy(operator, modes)},
        "customresourcedefinitions": {"owned": _owned(operator, settings)},
        "webhookdefinitions": webhook_definitions(operator.installation),
    }
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{package(operator, settings)}.v{version.lower()}",
            # OLM puts it where it is subscribed to.
            "namespace": "placeholder",
            "annotations": _annotations(operator, settings),
            "labels": {
                **{f"operatorframework.io/arch.{name}": "supported" for name in settings.architectures},
                "operatorframework.io/os.linux": "supported",
            },
        },
        "spec": _joined({key: value for key, value in spec.items() if value}, settings.spec),
    }


# What is said


def _annotations(operator: Operator, settings: BundleSettings) -> dict[str, str]:
    namespace = operator.installation.namespace
    found = {
        "alm-examples": json.dumps([_owned_sample(s) for s in _samples(operator)], indent=2),
        "capabilities": settings.capabilities,
        "categories": ", ".join(settings.categories),
        "containerImage": operator.image,
        "description": operator.about.description,
        "olm.skipRange": settings.skip_range,
        "operatorframework.io/suggested-namespace": namespace,
        "repository": operator.about.urls.get("source") or operator.about.urls.get("repository", ""),
    }
    return {**{key: value for key, value in found.items() if value}, **settings.annotations}


def _samples(operator: Operator) -> list[Manifest]:
    served = {
        (f"{d['spec']['group']}/{v['name']}", d["spec"]["names"]["kind"])
        for d in operator.installation.definitions
        for v in d["spec"]["versions"]
        if v["served"]
    }
    return [s for s in operator.samples if (s.get("apiVersion"), s["kind"]) in served]


def _owned_sample(sample: Manifest) -> Manifest:
    metadata = {key: value for key, value in sample["metadata"].items() if key != "namespace"}
    return {**sample, "metadata": metadata}


def _description(operator: Operator, settings: BundleSettings) -> str:
    text = settings.description
    if text.endswith(".md"):
        return _read(operator, text).decode()
    return text or operator.about.description


def _keywords(operator: Operator) -> list[str]:
    return sorted({d["spec"]["names"]["kind"].lower() for d in operator.installation.definitions})


def _provider(operator: Operator, settings: BundleSettings) -> dict[str, str]:
    people = operator.about.people
    found = settings.provider or Provider(people[0].name if people else operator.domain)
    return {"name": found.name} | ({"url": found.url} if found.url else {})


def _icon(operator: Operator, settings: BundleSettings) -> list[dict[str, str]]:
    if not settings.icon:
        return []
    media = _ICONS.get(Path(settings.icon).suffix.lower())
    if media is None:
        raise ConfigurationError(f"[tool.steersman.bundle] icon: {settings.icon} is none of {', '.join(_ICONS)}")
    return [{"base64data": base64.b64encode(_read(operator, settings.icon)).decode(), "mediatype": media}]


def _read(operator: Operator, name: str) -> bytes:
    try:
        return (operator.root / name).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"[tool.steersman.bundle] {name}: {error.strerror}") from error


def _install_modes(operator: Operator, settings: BundleSettings) -> tuple[InstallMode, ...]:
    """Those that are supported."""
    possible = ALL_NAMESPACES if converted(operator.installation) else INSTALL_MODES
    chosen = settings.install_modes or possible
    if not set(chosen) <= set(possible):
        raise ConfigurationError("[tool.steersman.bundle] install-modes: OLM converts for AllNamespaces only")
    return chosen


# What is served


def _owned(operator: Operator, settings: BundleSettings) -> list[dict[str, Any]]:
    return [
        _kind(operator, settings, definition["spec"], version)
        for definition in operator.installation.definitions
        for version in definition["spec"]["versions"]
        if version["served"]
    ]


def _kind(
    operator: Operator, settings: BundleSettings, spec: dict[str, Any], version: dict[str, Any]
) -> dict[str, Any]:
    kind = spec["names"]["kind"]
    name = settings.display_names.get(kind) or words(kind)
    found = {
        "name": f"{spec['names']['plural']}.{spec['group']}",
        "version": version["name"],
        "kind": kind,
        "displayName": name,
        "description": version["schema"]["openAPIV3Schema"].get("description") or f"{name} of {spec['group']}.",
        "resources": _resources(operator, spec["group"], kind),
        "specDescriptors": spec_descriptors(version),
        "statusDescriptors": status_descriptors(version),
    }
    return {key: value for key, value in found.items() if value}


def _resources(operator: Operator, group: str, kind: str) -> list[dict[str, str]]:
    """What its controllers own."""
    controllers = [c for c in operator.manager.controllers if (c.resource.group, c.resource.kind) == (group, kind)]
    owned = dict.fromkeys(r for c in controllers for r in c.owned)
    definitions = {d["metadata"]["name"] for d in operator.installation.definitions}
    return [
        {
            "kind": r.kind,
            "name": name if (name := f"{r.plural}.{r.group}") in definitions else "",
            "version": r.version,
        }
        for r in owned
    ]


def _joined(spec: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """``spec`` with ``more`` in it: tables one in another, anything else in its place."""
    found = dict(spec)
    for key, value in more.items():
        former = found.get(key)
        both = isinstance(former, dict) and isinstance(value, dict)
        found[key] = _joined(cast("dict[str, Any]", former), cast("dict[str, Any]", value)) if both else value
    return found
