"""No version is supported that no real server here holds the engines to."""

from __future__ import annotations

from every_server import every_server
from steersman_databases.engines import SUPPORTED_VERSIONS


def test_every_supported_version_has_its_server() -> None:
    """What cannot be had is left out of all other tests without a word."""
    supported = {f"{engine}-{version}" for engine, versions in SUPPORTED_VERSIONS.items() for version in versions}
    missing = {*supported, "mariadb-11.8"} - every_server().keys()
    assert not missing, "python -m devcluster servers says why they cannot be had"
