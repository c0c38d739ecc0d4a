"""A hostile name is data, never SQL, shell or YAML."""

from __future__ import annotations

import pytest

from database_under_test import DatabaseUnderTest

NAMES = {
    "quotes": """or'd"er`s""",
    "injection": """x"; DROP DATABASE canary; --""",
    "backslash": r"""a\'b\\""",
    "wildcards": "100%_sure",
    "shell": "$(touch /tmp/x) `id`",
    "unicode": "bestellungen-äöü-表",
    "keyword": "select",
}


@pytest.mark.parametrize("case", NAMES)
def test_is_only_a_name(database: DatabaseUnderTest, case: str) -> None:
    name = NAMES[case]
    # MySQL's user names are 32 characters at most, and PostgreSQL counts bytes: these names fit both.
    database.apply(databaseName=name, username=f"{name[:26]}-user")
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (1)")
    assert database.client_sql("SELECT n FROM t") == "1"
    listing = {"postgresql": "SELECT datname FROM pg_database", "mysql": "SHOW DATABASES"}[database.engine]
    shown = database.admin_sql(listing).splitlines()
    escaped = name.replace("\\", "\\\\") if database.engine == "mysql" else name
    assert escaped in shown
