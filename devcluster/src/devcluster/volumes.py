"""The devices behind volumes of limited size: loop devices belong to the host, and end with no machine."""

import json
import time
from pathlib import Path
from typing import Any

from devcluster.errors import NotReady
from devcluster.process import run


def _attached(directory: Path) -> list[str]:
    """The loop devices whose files are, or were, below a directory."""
    shown = run(["losetup", "--json", "--list", "--output", "NAME,BACK-FILE"])
    devices: list[dict[str, Any]] = json.loads(shown)["loopdevices"] if shown.strip() else []
    return [
        device["name"]
        for device in devices
        if Path(str(device["back-file"]).removesuffix(" (deleted)")).is_relative_to(directory)
    ]


def detach(directory: Path) -> None:
    """Free the loop devices of the volumes below a directory. Raises NotReady if one is in use for 10 s more."""
    for device in _attached(directory):
        run(["losetup", "--detach", device])  # at once, or when the last mount of it goes
    deadline = time.monotonic() + 10
    while left := _attached(directory):
        if time.monotonic() > deadline:
            raise NotReady(f"still in use: {', '.join(left)}")
        time.sleep(0.05)
