"""Start of ``kubectl steersman``."""

from __future__ import annotations

import subprocess
import sys

_HEAVY = ("asyncmy", "cryptography", "obstore", "psycopg")


def test_command_starts_without_database_drivers() -> None:
    program = f"import sys, steersman_databases.kubectl.app; print(*sorted(set({_HEAVY!r}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert loaded.stdout.strip() == ""
