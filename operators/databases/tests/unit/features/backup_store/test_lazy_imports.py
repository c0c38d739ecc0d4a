"""Start of the operator without the libraries of object stores."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import steersman_databases.main
print(sorted({"obstore", "steersman_databases.features.backup_store.objects"} & sys.modules.keys()))
import steersman_databases.features.backup_store.objects
print("obstore" in sys.modules)
"""


def test_operator_starts_without_obstore() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.split() == ["[]", "True"]
