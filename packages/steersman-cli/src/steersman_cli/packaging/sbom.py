"""Software bill of materials (SBOM) of an operator's image. Source: CycloneDX 1.6.

pip reports the packages: ``pip inspect`` in an image, ``pip install --dry-run --report`` without one. Sources:
"Installation Report" and "pip inspect JSON output" of pip.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from steersman.errors import ConfigurationError
from steersman_cli.packaging.project_metadata import ProjectMetadata

# A decorator hides the constructor arguments of these classes from type checkers.
_Component: Any = Component
_DisjunctiveLicense: Any = DisjunctiveLicense
_ExternalReference: Any = ExternalReference
_HashType: Any = HashType
_Bom: Any = Bom
_XsUri: Any = XsUri

_HASH_ALGORITHMS = {"sha256": HashAlgorithm.SHA_256, "sha384": HashAlgorithm.SHA_384, "sha512": HashAlgorithm.SHA_512}
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://steersman.dev/sbom")
# Longer values are the text of a license, not its name.
_MAX_LICENSE_NAME_LENGTH = 100


def render_sbom(report: Mapping[str, Any], metadata: ProjectMetadata) -> str:
    """Render the packages in ``report`` as a CycloneDX document in JSON.

    The text is reproducible if ``$SOURCE_DATE_EPOCH`` sets the timestamp.

    Args:
        report: report of ``pip inspect`` or ``pip install --report``.
        metadata: metadata of the project, the root component.

    Raises:
        ConfigurationError: the report does not contain the project.
    """
    entries: dict[str, dict[str, Any]] = {
        canonicalize_name(e["metadata"]["name"]): e for e in report.get("install") or report.get("installed") or ()
    }
    project_name = canonicalize_name(metadata.name)
    if project_name not in entries:
        raise ConfigurationError(f"{metadata.name} is not among the packages: {', '.join(sorted(entries)) or 'none'}")
    components: dict[str, Any] = {
        name: _component(entry, root=name == project_name) for name, entry in sorted(entries.items())
    }
    bom = _Bom(components=[c for name, c in components.items() if name != project_name])
    bom.metadata.component = components[project_name]
    bom.metadata.tools.components.add(
        _Component(name="steersman", version=version_of("steersman"), type=ComponentType.APPLICATION)
    )
    bom.metadata.timestamp = _timestamp()
    bom.serial_number = uuid.uuid5(_NAMESPACE, "\n".join(sorted(str(c.bom_ref.value) for c in components.values())))
    for name, dependencies in _dependencies(entries, report.get("environment") or {}).items():
        bom.register_dependency(components[name], [components[n] for n in dependencies])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"


def _component(entry: Mapping[str, Any], *, root: bool) -> Any:
    metadata: dict[str, Any] = entry["metadata"]
    name, version = metadata["name"], metadata["version"]
    purl = PackageURL("pypi", None, canonicalize_name(name), version)
    origin: dict[str, Any] = entry.get("download_info") or entry.get("direct_url") or {}
    archive: dict[str, Any] = origin.get("archive_info") or {}
    hashes: dict[str, str] = archive.get("hashes") or {}
    return _Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION if root else ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=purl,
        description=metadata.get("summary"),
        licenses=_licenses(metadata),
        hashes=[
            _HashType(alg=_HASH_ALGORITHMS[a], content=h) for a, h in sorted(hashes.items()) if a in _HASH_ALGORITHMS
        ],
        external_references=[
            _ExternalReference(type=ExternalReferenceType.WEBSITE, url=_XsUri(url)) for url in _homepages(metadata)
        ],
    )


def _licenses(metadata: Mapping[str, Any]) -> list[Any]:
    """Return the declared licenses. Sources: PEP 639, "Core metadata specifications"."""
    factory, declared = LicenseFactory(), LicenseAcknowledgement.DECLARED
    license_text = metadata.get("license_expression") or metadata.get("license") or ""
    if (
        license_text
        and license_text != "UNKNOWN"
        and len(license_text) <= _MAX_LICENSE_NAME_LENGTH
        and "\n" not in license_text
    ):
        return [factory.make_from_string(license_text, license_acknowledgement=declared)]
    classifiers: list[str] = [c for c in metadata.get("classifier") or () if c.startswith("License :: ")]
    names = (c.rpartition(" :: ")[2] for c in classifiers)
    return [_DisjunctiveLicense(name=n, acknowledgement=declared) for n in sorted(set(names)) if n != "OSI Approved"]


def _homepages(metadata: Mapping[str, Any]) -> list[str]:
    labelled = (u.partition(",") for u in metadata.get("project_url") or ())
    urls = [metadata.get("home_page") or "", *(u.strip() for label, _, u in labelled if label.lower() == "homepage")]
    return [next((u for u in urls if u.startswith("http")), "")] if any(u.startswith("http") for u in urls) else []


def _dependencies(entries: Mapping[str, dict[str, Any]], environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the dependencies of each package, by name."""
    requirements = {
        name: [Requirement(r) for r in entry["metadata"].get("requires_dist") or ()]
        for name, entry in entries.items()
    }
    extras: dict[str, set[str]] = {name: {""} for name in entries}
    for requirement in (r for found in requirements.values() for r in found):
        if (dependency := canonicalize_name(requirement.name)) in extras:
            extras[dependency] |= requirement.extras
    return {
        name: _installed_requirements(found, extras[name], entries, environment)
        for name, found in requirements.items()
    }


def _installed_requirements(
    requirements: Iterable[Requirement], extras: set[str], entries: Mapping[str, Any], environment: Mapping[str, str]
) -> list[str]:
    found: set[str] = set()
    for requirement in requirements:
        marker = requirement.marker
        applies = marker is None or any(marker.evaluate({**environment, "extra": e}) for e in extras)
        if applies and (name := canonicalize_name(requirement.name)) in entries:
            found.add(name)
    return sorted(found)


def _timestamp() -> datetime:
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC).replace(microsecond=0)
