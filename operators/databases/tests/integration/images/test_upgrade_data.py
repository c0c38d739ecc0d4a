"""`steersman-upgrade` on data of 15, with the programs of both majors."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.servers.upgrade_volume import UpgradeVolume
from steersman_databases.features.major_upgrade.specs import EXIT_CODE_REJECTED


@pytest.mark.parametrize(
    ("parameters", "rules", "words"),
    [
        ({"shared_preload_libraries": "absent"}, (), 'FATAL:  could not access file "absent"'),
        (
            {"max_connections": "50", "superuser_reserved_connections": "50"},
            (),
            'plus "reserved_connections" (0) must be less than "max_connections" (50)',
        ),
        # For 15 it is a name.
        ({}, ("local all /( peer",), 'invalid regular expression "("'),
    ],
)
def test_new_server_start_failure_is_reported_and_data_kept(
    volume: UpgradeVolume, parameters: dict[str, Any], rules: tuple[str, ...], words: str
) -> None:
    # Which it may, and which would leave nothing to be told of the rest.
    volume.give({"log_min_messages": "panic", "log_destination": "syslog", **parameters}, *rules)
    before = volume.content()
    code, said = volume.upgrade()
    assert code == EXIT_CODE_REJECTED, said
    assert said.startswith("with the parameters of the cluster PostgreSQL 17 does not start: ") and words in said
    assert volume.content() == before
    assert "Ulysses" in volume.ask("15", "SELECT title FROM book")


@pytest.mark.timeout(600)
def test_settings_unknown_to_new_version_are_ignored(volume: UpgradeVolume) -> None:
    (volume.data / "postgresql.auto.conf").write_text("work_mem = '5MB'\n")
    volume.give({"old_snapshot_threshold": "1h", "max_connections": "50", "shared_buffers": "16MB"})
    code, said = volume.upgrade()
    assert code == 0, said
    assert said == "2 databases, 0 indexes rebuilt for their collations, amcheck clean"
    assert sorted(path.name for path in (volume.directory / "volume").iterdir()) == ["pgdata", "pgdata.15"]
    assert "Ulysses" in volume.ask("17", "SELECT title FROM book")
    assert "5MB" in volume.ask("17", "SHOW work_mem")
    assert "shared_buffers = '16MB'" not in (volume.data / "postgresql.conf").read_text(), "Patroni's to write"
