"""A group of real MySQL members that all tests of a module share."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest

from database_support.servers.mysql_members import MemberProcess, MemberProcesses, members, until
from database_support.servers.process import data_directory
from devcluster import database_servers
from steersman_testing.envtest import Envtest


@pytest.fixture(scope="module")
def group(envtest: Envtest) -> Generator[MemberProcesses]:
    """A group for all tests of a module. Each test leaves it complete."""
    root = database_servers.root(database_servers.SID)
    if root is None:
        pytest.skip("Debian sid is not available; see python -m devcluster servers")
    with data_directory() as directory, members(envtest, root, directory) as group:
        directory.chmod(0o755)
        yield group
        # Shown by pytest for failed tests.
        sys.stdout.write(group.logs())


@pytest.fixture
def primary(group: MemberProcesses) -> MemberProcess:
    """Primary of the complete group."""
    for one in group.all:
        if one.container is None:
            one.start()
    return settled(group)


def settled(group: MemberProcesses) -> MemberProcess:
    try:
        return until("all are online", group.wait_settled, 240)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{group.logs()}") from None


def replicas(group: MemberProcesses, primary: MemberProcess) -> list[MemberProcess]:
    return [one for one in group.all if one is not primary]


def kept(member: MemberProcess) -> int:
    """Number of acknowledged rows."""
    return member.sql("SELECT COUNT(*) FROM shop.kept")[0][0]


def write(member: MemberProcess, rows: int = 10) -> None:
    member.sql(
        "CREATE DATABASE IF NOT EXISTS shop",
        "CREATE TABLE IF NOT EXISTS shop.kept (id INT AUTO_INCREMENT PRIMARY KEY)",
        *["INSERT INTO shop.kept VALUES ()"] * rows,
    )
