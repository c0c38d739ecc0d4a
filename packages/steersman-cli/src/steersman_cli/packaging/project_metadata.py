"""Project metadata in ``pyproject.toml``. Source: PEP 621, "Storing project metadata"."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steersman.errors import ConfigurationError


@dataclass(frozen=True)
class Maintainer:
    """Maintainer of a project."""

    name: str
    email: str = ""


@dataclass(frozen=True)
class ProjectMetadata:
    """Fields of ``[project]`` that packages repeat.

    Attributes:
        name: name of the distribution.
        version: semantic version of the operator and its packages, which OLM and Helm require.
        description: one line.
        license: an SPDX expression, or empty.
        keywords: keywords for catalogs.
        maintainers: the maintainers; without any, the authors.
        urls: URLs by label in lower case, such as ``homepage`` and ``source``.
    """

    name: str
    version: str
    description: str = ""
    license: str = ""
    keywords: tuple[str, ...] = ()
    maintainers: tuple[Maintainer, ...] = ()
    urls: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def read(cls, root: Path) -> ProjectMetadata:
        """Read the metadata of the project in ``root``.

        Raises:
            ConfigurationError: the file is unreadable or has no version.
        """
        file = root / "pyproject.toml"
        try:
            project: dict[str, Any] = tomllib.loads(file.read_text()).get("project", {})
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"cannot read {file}: {error}") from error
        if "version" not in project:
            raise ConfigurationError(f'{file} has no version in [project]: add one, such as "0.1.0"')
        maintainers: list[dict[str, str]] = project.get("maintainers") or project.get("authors") or []
        license = project.get("license", "")
        return cls(
            name=project["name"],
            version=_to_semantic_version(project["version"]),
            description=project.get("description", ""),
            license=license if isinstance(license, str) else "",
            keywords=tuple(project.get("keywords", ())),
            maintainers=tuple(Maintainer(p.get("name") or p["email"], p.get("email", "")) for p in maintainers),
            urls={label.lower(): url for label, url in project.get("urls", {}).items()},
        )


def _to_semantic_version(version: str) -> str:
    """Convert a Python version to a semantic version.

    ``1.2`` becomes 1.2.0, and ``1.2.0rc1`` becomes 1.2.0-rc.1. Sources: PEP 440, semver.org.

    Raises:
        ConfigurationError: the version has no semantic form.
    """
    found = re.fullmatch(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:(a|b|rc)(\d+))?(?:\.dev(\d+))?(\+[a-z0-9.]+)?", version)
    if found is None:
        raise ConfigurationError(
            f"version {version!r} in pyproject.toml is not a semantic version: use one such as 1.2.3"
        )
    major, minor, patch, stage, number, dev, local = found.groups()
    names = {"a": "alpha", "b": "beta", "rc": "rc"}
    prerelease = [*([names[stage], number] if stage else []), *(["dev", dev] if dev is not None else [])]
    suffix = f"{'-' if prerelease else ''}{'.'.join(prerelease)}{local or ''}"
    return f"{int(major)}.{int(minor or 0)}.{int(patch or 0)}{suffix}"
