"""Program that prints the history of this instance: ``steersman-instance history 10s``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ...paths import PATHS
from .. import local_request
from ..server import HISTORY_PATH, PORT
from .recorder import RESOLUTIONS


def main(arguments: Sequence[str]) -> int:
    """Print the history as JSON. Return 1 if the exporter does not respond."""
    if len(arguments) != 1 or arguments[0] not in RESOLUTIONS:
        sys.stderr.write(f"usage: steersman-instance history {'|'.join(RESOLUTIONS)}\n")
        return 2
    try:
        status, body = local_request.get(PORT, f"{HISTORY_PATH}?resolution={arguments[0]}", PATHS.tls / "ca.crt")
    except local_request.RequestFailed as error:
        sys.stderr.write(f"the exporter of the instance does not respond: {error}\n")
        return 1
    if status != 200:
        sys.stderr.write(f"the exporter of the instance responded with status {status}\n")
        return 1
    sys.stdout.write(body.decode())
    return 0
