from __future__ import annotations

import pytest

from steersman_databases.engines import (
    ENGINES,
    SUPPORTED_VERSIONS,
    Credentials,
    InvalidName,
    UnknownEngine,
    UnsupportedVersion,
    engine_named,
    image,
    override_variable,
)
from steersman_databases.engines.desired import DesiredUser


def test_every_engine_has_versions_and_an_image() -> None:
    assert set(ENGINES) == set(SUPPORTED_VERSIONS)
    assert image("postgresql", "17", {}) == "steersman.dev/postgresql:17"
    assert image("mysql", "9.7", {}) == "steersman.dev/mysql:9.7"


def test_environment_overrides_an_image() -> None:
    assert override_variable("mysql", "9.7") == "STEERSMAN_IMAGE_MYSQL_9_7"
    assert image("mysql", "9.7", {"STEERSMAN_IMAGE_MYSQL_9_7": "example.com/db"}) == "example.com/db"
    assert image("mysql", "9.7", {"STEERSMAN_IMAGE_MYSQL_9_7": ""}) == "steersman.dev/mysql:9.7"


def test_unknown_engine_says_which_there_are() -> None:
    with pytest.raises(UnknownEngine, match='"oracle" is unknown: use "mysql" or "postgresql"'):
        engine_named("oracle")
    with pytest.raises(UnknownEngine):
        image("oracle", "23", {})


def test_unsupported_version_says_which_there_are() -> None:
    with pytest.raises(UnsupportedVersion, match='version "16" of postgresql is not supported: use "15" or "17"'):
        image("postgresql", "16", {})


def test_passwords_never_show() -> None:
    assert "s3cret" not in repr(Credentials("clerk", "s3cret"))
    assert "s3cret" not in repr(DesiredUser("clerk", "s3cret"))


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("password", ["", "hush\0", "hush\ud800"])
def test_unusable_passwords_are_refused_unseen(name: str, password: str) -> None:
    with pytest.raises(InvalidName) as caught:
        engine_named(name).check(DesiredUser("clerk", password), "admin")
    assert caught.value.field == "password"
    assert "hush" not in f"{caught.value} {caught.value.args} {vars(caught.value)}"
