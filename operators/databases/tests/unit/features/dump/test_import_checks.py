"""Refusals of sources that the tests on real servers do not have."""

from __future__ import annotations

from contextlib import nullcontext
from io import BytesIO

import pytest

from steersman_instance.dump import mysql_load, postgresql_load
from steersman_instance.dump.postgresql_import import require_encoding, require_extensions
from steersman_instance.dump.source import DumpSource
from steersman_instance.jobs import JobRefused


def source(version: str) -> DumpSource:
    """Return a source of a version."""
    return DumpSource(
        name="Database shop of db", version=version, result={}, read=lambda: nullcontext(({}, BytesIO()))
    )


@pytest.mark.parametrize(
    ("found", "target"),
    [
        ("9.7.0", "8.4.3"),
        ("11.4.2-MariaDB", "9.7.0"),
        ("8.0.36", "11.4.2-MariaDB-ubu2404"),
        ("11.8.1-MariaDB", "5.5.5-10.11.2-MariaDB"),
    ],
)
def test_mysql_source_of_other_product_or_newer_is_refused(found: str, target: str) -> None:
    with pytest.raises(JobRefused, match=f"Database shop of db is of version {found}, and the server has {target}"):
        mysql_load.require_fitting(source(found), target)


def test_older_source_of_same_product_is_accepted() -> None:
    mysql_load.require_fitting(source("5.7.44-log"), "9.7.0")
    mysql_load.require_fitting(source("10.6.1-MariaDB"), "11.4.2-MariaDB")
    postgresql_load.require_fitting(source("9.6.24"), 17, "17.5")


def test_newer_postgresql_source_is_refused() -> None:
    with pytest.raises(JobRefused, match=r"is of PostgreSQL 17\.5, and the server has 16\.1"):
        postgresql_load.require_fitting(source("17.5"), 16, "16.1")


def test_extension_that_the_server_does_not_offer_is_refused() -> None:
    target = {"present": ["plpgsql"], "available": ["citext", "dblink"], "creatable": ["citext"]}
    require_extensions("Database shop of db", ["citext", "plpgsql"], target)
    with pytest.raises(JobRefused, match="has extension aws_s3, which the new server does not offer"):
        require_extensions("Database shop of db", ["aws_s3", "dblink"], target)


@pytest.mark.parametrize(("found", "target"), [("UTF8", "LATIN1"), ("LATIN1", "LATIN9"), ("SQL_ASCII", "UTF8")])
def test_encoding_that_may_lack_characters_is_refused(found: str, target: str) -> None:
    with pytest.raises(JobRefused, match=f"Create a new Database with spec.encoding {found}"):
        require_encoding("Database shop of db", found, target)


def test_any_encoding_but_raw_bytes_fits_utf8() -> None:
    require_encoding("Database shop of db", "LATIN1", "UTF8")
    require_encoding("Database shop of db", "SQL_ASCII", "SQL_ASCII")
