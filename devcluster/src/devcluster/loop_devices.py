"""Loop devices of volumes with limited size; they belong to the host."""

import json
import time
from pathlib import Path
from typing import Any

from devcluster.errors import NotReady
from devcluster.process import run


def _attached_devices(directory: Path) -> list[str]:
    """The loop devices whose files are, or were, below a directory."""
    output = run(["losetup", "--json", "--list", "--output", "NAME,BACK-FILE"])
    devices: list[dict[str, Any]] = json.loads(output)["loopdevices"] if output.strip() else []
    return [
        device["name"]
        for device in devices
        if Path(str(device["back-file"]).removesuffix(" (deleted)")).is_relative_to(directory)
    ]


def detach(directory: Path) -> None:
    """Detach the loop devices below a directory. Raises NotReady after 10 seconds."""
    for device in _attached_devices(directory):
        run(["losetup", "--detach", device])  # at once, or when the last mount of it goes
    deadline = time.monotonic() + 10
    while remaining := _attached_devices(directory):
        if time.monotonic() > deadline:
            raise NotReady(f"still in use: {', '.join(remaining)}")
        time.sleep(0.05)
