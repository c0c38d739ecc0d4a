from __future__ import annotations

import pytest

from steersman_databases.engines import (
    SUPPORTED_VERSIONS,
    InvalidName,
    SqlCredentials,
    UnknownEngine,
    UnsupportedVersion,
    image,
    override_variable,
)
from steersman_databases.engines.registry import SQL_ENGINES, sql_engine_named
from steersman_databases.engines.sql.desired import DesiredUser
from steersman_databases.engines.versions import upgrade_image


def test_engines_have_versions_and_images() -> None:
    assert set(SQL_ENGINES) == set(SUPPORTED_VERSIONS)
    assert image("postgresql", "17", {}) == "steersman.dev/postgresql:17"
    assert image("mysql", "9.7", {}) == "steersman.dev/mysql:9.7"


def test_environment_overrides_image() -> None:
    assert override_variable("mysql", "9.7") == "STEERSMAN_IMAGE_MYSQL_9_7"
    assert image("mysql", "9.7", {"STEERSMAN_IMAGE_MYSQL_9_7": "example.com/db"}) == "example.com/db"
    assert image("mysql", "9.7", {"STEERSMAN_IMAGE_MYSQL_9_7": ""}) == "steersman.dev/mysql:9.7"


def test_upgrade_image_has_all_earlier_versions() -> None:
    for former in ("15", "17"):
        assert upgrade_image("postgresql", former, "18", {}) == "steersman.dev/postgresql-upgrade:18"
    assert upgrade_image("postgresql", "15", "17", {"STEERSMAN_IMAGE_POSTGRESQL_UPGRADE_17": "own"}) == "own"
    for unsupported in (("postgresql", "18", "17"), ("postgresql", "16", "17"), ("mysql", "8.4", "9.7")):
        assert upgrade_image(*unsupported, {}) is None


def test_unknown_engine_lists_known_engines() -> None:
    with pytest.raises(UnknownEngine, match=r'"oracle" is not supported\. Use "mysql" or "postgresql"'):
        sql_engine_named("oracle")
    with pytest.raises(UnknownEngine):
        image("oracle", "23", {})


def test_unsupported_version_lists_supported_versions() -> None:
    with pytest.raises(
        UnsupportedVersion, match=r'version "16" of postgresql is not supported\. Use "15", "17" or "18"'
    ):
        image("postgresql", "16", {})


def test_passwords_are_not_in_repr() -> None:
    assert "s3cret" not in repr(SqlCredentials("clerk", "s3cret"))
    assert "s3cret" not in repr(DesiredUser("clerk", "s3cret"))


@pytest.mark.parametrize("name", SQL_ENGINES)
@pytest.mark.parametrize("password", ["", "hush\0", "hush\ud800"])
def test_unusable_password_is_rejected_without_showing_it(name: str, password: str) -> None:
    with pytest.raises(InvalidName) as caught:
        sql_engine_named(name).check(DesiredUser("clerk", password), "admin")
    assert caught.value.field == "password"
    assert "hush" not in f"{caught.value} {caught.value.args} {vars(caught.value)}"
