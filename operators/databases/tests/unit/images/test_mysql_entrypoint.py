"""What a MySQL container without an agent does before it becomes the server; lines of shell play the server."""

from __future__ import annotations

import subprocess
from pathlib import Path

from database_support.unit.image_script import IMAGES

ENGINE = """
make_data() { mkdir "$1"; }
serve() { echo "$@"; }
"""


def begun(directory: Path, *arguments: str) -> list[str]:
    """What the server is started with, where the image's directories lie in this one."""
    places = {
        "/var/lib/steersman/data": directory / "volume",
        "/run/steersman": directory / "run",
        "/usr/local/lib/steersman/engine.sh": directory / "engine.sh",
    }
    script = (IMAGES / "mysql/entrypoint.sh").read_text()
    for place, here in places.items():
        script = script.replace(place, str(here))
    (directory / "engine.sh").write_text(ENGINE)
    command = ["sh", "-c", script, "sh", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()


def test_temporary_files_are_on_volume_and_removed_at_start(tmp_path: Path) -> None:
    for name in ("volume/mysql", "run"):
        (tmp_path / name).mkdir(parents=True)
    temporary = tmp_path / "volume/mysql.temporary"
    for _ in range(2):
        # What is given to the container has the last word.
        assert begun(tmp_path, "--skip-log-bin") == [f"--tmpdir={temporary}", "--skip-log-bin"]
        assert list(temporary.iterdir()) == []
        (temporary / "left").touch()
