"""Variables that refuse clients, and accounts, as the agent of a member restores them; by a clock of the test."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest

from steersman_agent.group.group_status import GroupPeer, ServerQueryFailed, ServerStatus
from steersman_agent.server.service_settings import ServiceSettings
from steersman_agent.server.system_accounts import SystemAccounts, write_init_file
from steersman_instance.gtids import GtidSet

SERVING = [0, "", 0, 0]
"""Values of a primary, in the order of the query."""


@dataclass
class FakeLocal:
    """A server with these values. `accounts` can log in."""

    values: list[Any] = field(default_factory=lambda: list(SERVING))
    election: int = 0
    accounts: set[str] = field(default_factory=set[str])
    set_values: dict[str, Any] = field(default_factory=dict[str, Any])
    ran: list[str] = field(default_factory=list[str])
    rejects: str = ""

    def kept_rows(self, statement: str) -> Sequence[Sequence[Any]]:
        if statement.startswith("SELECT @@GLOBAL"):
            return [self.values]
        if "performance_schema.threads" in statement:
            return [[self.election]]
        if "FROM mysql.user u" in statement:
            return [[account] for account in self.accounts]
        self.ran.append(statement)
        if self.rejects and self.rejects in statement:
            raise ServerQueryFailed(pymysql.OperationalError(1819, "Your password does not satisfy the policy"))
        return []

    def set_global_kept(self, name: str, value: Any) -> None:
        self.set_values[name] = value


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: found.now)
    return found


def status(*, primary: bool = True, state: str = "ONLINE") -> ServerStatus:
    me = GroupPeer(uuid="a", host="10.0.0.1", port=3306, state=state, primary=primary)
    return ServerStatus(
        uuid="a", version="9.7.4", state=state, view="1:1", members=[me], executed=GtidSet(), apply_queue=0, applied=0
    )


def settings_of(local: FakeLocal) -> ServiceSettings:
    return ServiceSettings(local, {})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("position", "value", "name"),
    [(0, 1, "offline_mode"), (1, "nonsense", "init_connect"), (2, 1, "super_read_only"), (3, 1, "read_only")],
)
def test_variable_set_by_a_person_is_reset_after_10s(clock: Clock, position: int, value: Any, name: str) -> None:
    local = FakeLocal()
    settings = settings_of(local)
    assert settings.restore(status()) == ()
    local.values[position] = value
    for _ in range(10):
        assert settings.restore(status()) == ()
        clock.now += 1
    assert settings.restore(status()) == [name]
    assert local.set_values == {name: SERVING[position]}


def test_read_only_during_election_is_left_alone(clock: Clock) -> None:
    local = FakeLocal(values=[0, "", 1, 1], election=1)
    settings = settings_of(local)
    for _ in range(60):
        assert settings.restore(status()) == ()
        clock.now += 1
    local.election = 0
    for _ in range(9):
        assert settings.restore(status()) == ()
        clock.now += 1
    clock.now += 1
    assert settings.restore(status()) == ["read_only", "super_read_only"]


def test_member_outside_of_group_is_left_alone(clock: Clock) -> None:
    local = FakeLocal(values=[1, "", 1, 1])
    settings = settings_of(local)
    for _ in range(60):
        assert settings.restore(status(state="ERROR")) == ()
        clock.now += 1
    assert settings.restore(status()) == (), "the time begins when it is online"


def test_replica_is_read_only(clock: Clock) -> None:
    local = FakeLocal()
    settings = settings_of(local)
    assert settings.restore(status(primary=False)) == ()
    clock.now += 11
    assert settings.restore(status(primary=False)) == ["read_only", "super_read_only"]
    assert local.set_values == {"super_read_only": 1, "read_only": 1}


ACCOUNTS = """CREATE USER IF NOT EXISTS `steersman_replication`@`%` IDENTIFIED BY '';
CREATE USER IF NOT EXISTS `steersman_operator`@`%` IDENTIFIED BY '';
"""
ALL = {"root@localhost", "steersman_replication@%", "steersman_operator@%"}


def accounts_of(local: FakeLocal, directory: Path) -> SystemAccounts:
    (directory / "accounts.sql").write_text(ACCOUNTS)
    return SystemAccounts(local, directory / "accounts.sql")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("missing", sorted(ALL))
def test_missing_account_is_recreated_within_10s(clock: Clock, tmp_path: Path, missing: str) -> None:
    local = FakeLocal(accounts=ALL | {"app@%"})
    accounts = accounts_of(local, tmp_path)
    assert accounts.restore() is False
    local.ran.clear()
    local.accounts.remove(missing)
    clock.now += 5
    assert accounts.restore() is None
    clock.now += 5
    assert accounts.restore() is True
    assert local.ran[0] == "FLUSH PRIVILEGES"
    assert [one for one in local.ran if one.startswith("CREATE USER")][1:] == [
        *ACCOUNTS.strip().split(";\n")[:1],
        "CREATE USER IF NOT EXISTS `steersman_operator`@`%` IDENTIFIED BY ''",
    ]


def test_accounts_are_replicated_once_all_are_online(clock: Clock, tmp_path: Path) -> None:
    local = FakeLocal(accounts=set(ALL), rejects="CREATE USER IF NOT EXISTS `steersman_replication`")
    accounts = accounts_of(local, tmp_path)
    for _ in range(2):
        accounts.record_start()
        assert accounts.restore() is False and not local.ran, "a member joins"
        clock.now += 10
        complete = accounts.restore(is_group_complete=True)
        assert complete is False, "all accounts exist, and one statement is rejected"
        assert any("CREATE USER IF NOT EXISTS `steersman_operator`" in one for one in local.ran)
        local.ran.clear()
        clock.now += 10
        assert accounts.restore(is_group_complete=True) is False and not local.ran


def test_rejected_statement_does_not_end_the_others(clock: Clock, tmp_path: Path) -> None:
    local = FakeLocal(rejects="CREATE USER IF NOT EXISTS `steersman_replication`")
    accounts = accounts_of(local, tmp_path)
    with pytest.raises(ServerQueryFailed, match="1819"):
        accounts.restore()
    assert any("CREATE USER IF NOT EXISTS `steersman_operator`" in one for one in local.ran)


def test_init_file_of_a_start_skips_the_binary_log(tmp_path: Path) -> None:
    (tmp_path / "accounts.sql").write_text(ACCOUNTS)
    write_init_file(tmp_path / "init.sql", tmp_path / "accounts.sql")
    first, *others = (tmp_path / "init.sql").read_text().splitlines()
    assert first == "SET SESSION sql_log_bin = OFF;"
    assert sum(one.startswith("CREATE USER") for one in others) == 3
    write_init_file(tmp_path / "init.sql", tmp_path / "missing.sql")
    assert "root@localhost" in (tmp_path / "init.sql").read_text(), "a server starts without the operator's SQL"
