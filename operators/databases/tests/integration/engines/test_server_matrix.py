"""No version is supported that no real server here holds the engines to."""

from __future__ import annotations

import pytest

from database_support.servers.matrix import every_server
from devcluster import database_servers
from steersman_databases.engines import SUPPORTED_VERSIONS


@pytest.mark.parametrize(
    "name",
    [
        *(f"{engine}-{version}" for engine, versions in SUPPORTED_VERSIONS.items() for version in versions),
        "mariadb-11.8",
    ],
)
def test_supported_versions_all_have_a_server(name: str) -> None:
    """What cannot be had is left out of all other tests without a word."""
    if name.startswith("mysql-") and database_servers.root(database_servers.SID) is None:
        pytest.skip(f"{database_servers.SID.title} cannot be had: python -m devcluster servers says why")
    assert name in every_server(whole=True)
