"""Which versions of which engine there are, and the images that run them: the only place that knows."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import UnknownEngine, UnsupportedVersion

SUPPORTED_VERSIONS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {"15": "steersman.dev/postgresql:15", "17": "steersman.dev/postgresql:17"},
    "mysql": {"9.7": "steersman.dev/mysql:9.7"},
}
"""Engine name → version → image."""
UPGRADES: Mapping[tuple[str, str, str], str] = {
    ("postgresql", "15", "17"): "steersman.dev/postgresql-upgrade:15-17",
}
"""Engine name, version of the data, version that is wanted → image with the programs of both."""


def image(engine: str, version: str, environ: Mapping[str, str] = os.environ) -> str:
    """The image that runs this version of this engine.

    The environment overrides it, as the operator's Deployment does where images come from another registry:
    `STEERSMAN_IMAGE_MYSQL_9_7` for MySQL 9.7.

    Raises `UnknownEngine` or `UnsupportedVersion`, which say what there is.
    """
    versions = SUPPORTED_VERSIONS.get(engine)
    if versions is None:
        raise UnknownEngine(engine, SUPPORTED_VERSIONS)
    if version not in versions:
        raise UnsupportedVersion(engine, version, versions)
    return environ.get(override_variable(engine, version)) or versions[version]


def upgrade_image(engine: str, former: str, version: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The image that upgrades data in place; None where nothing leads from ``former`` to ``version``.

    Overridden as `image` is, by `STEERSMAN_IMAGE_POSTGRESQL_15_17`.
    """
    known = UPGRADES.get((engine, former, version))
    return known and (environ.get(override_variable(engine, f"{former}-{version}")) or known)


def ordered(version: str) -> tuple[int, ...]:
    """17 and 9.7 as numbers; what is none comes first."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def override_variable(engine: str, version: str) -> str:
    """The environment variable that overrides an image, `STEERSMAN_IMAGE_POSTGRESQL_17`."""
    return f"STEERSMAN_IMAGE_{engine}_{version}".upper().replace(".", "_").replace("-", "_")
