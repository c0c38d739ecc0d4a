"""Supported versions of each engine, and the images that run them.

No other module knows them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import UnknownEngine, UnsupportedVersion

SUPPORTED_VERSIONS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {version: f"steersman.dev/postgresql:{version}" for version in ("15", "17", "18")},
    "mysql": {"9.7": "steersman.dev/mysql:9.7"},
}
"""Engine name → version → image."""
UPGRADE_IMAGES: Mapping[str, Mapping[str, str]] = {
    "postgresql": {version: f"steersman.dev/postgresql-upgrade:{version}" for version in ("17", "18")},
}
"""Engine name → desired version → image with its programs and all earlier ones."""
CLIENT_VERSIONS: Mapping[str, str] = {"postgresql": "17", "mysql": "9.7"}
"""Engine name → version whose client programs dump and load.

Programs of 18 that are older than a server's minor version write statements that no server accepts.
"""
CONTRACTS = range(2)
"""Supported contracts of images: the newest one and the two before it.

The newest one is that of images/common/steersman_pod/contract.py. Images without a number have contract 0.
"""


def image(engine: str, version: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the image that runs this version of this engine.

    An environment variable overrides it if images come from another registry: `STEERSMAN_IMAGE_MYSQL_9_7` for
    MySQL 9.7, set in the operator's Deployment.

    Raises:
        UnknownEngine: there is no such engine. The message lists the engines.
        UnsupportedVersion: there is no such version. The message lists the versions.
    """
    versions = SUPPORTED_VERSIONS.get(engine)
    if versions is None:
        raise UnknownEngine(engine, SUPPORTED_VERSIONS)
    if version not in versions:
        raise UnsupportedVersion(engine, version, versions)
    return environ.get(override_variable(engine, version)) or versions[version]


def upgrade_image(
    engine: str, from_version: str, to_version: str, environ: Mapping[str, str] = os.environ
) -> str | None:
    """Return the image that upgrades data in place.

    None if there is no such upgrade. `STEERSMAN_IMAGE_POSTGRESQL_UPGRADE_17` overrides it, as with `image`.
    """
    known = UPGRADE_IMAGES.get(engine, {}).get(to_version)
    is_earlier = version_tuple(from_version) < version_tuple(to_version)
    if known is None or from_version not in SUPPORTED_VERSIONS[engine] or not is_earlier:
        return None
    return environ.get(override_variable(engine, f"upgrade-{to_version}")) or known


def version_tuple(version: str) -> tuple[int, ...]:
    """Return 17 or 9.7 as a tuple of numbers.

    Text that is not a version sorts first.
    """
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def override_variable(engine: str, version: str) -> str:
    """Return the environment variable that overrides an image, `STEERSMAN_IMAGE_POSTGRESQL_17`."""
    return f"STEERSMAN_IMAGE_{engine}_{version}".upper().replace(".", "_").replace("-", "_")
