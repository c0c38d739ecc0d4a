"""``trial``: ends an overdue trial of a parameter.

It reads the copy of the shared configuration that Patroni keeps with the data. So it needs the API server only for an
overdue trial. Every member may end it: the first write wins, and Patroni applies it to all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Generator, Mapping
from datetime import UTC, datetime

from steersman_pod.api_client import ApiClient, ApiRequest, ApiResponse, ApiUnavailable, run_requests

from .paths import PATHS
from .trial_record import is_overdue, read_settings, trial_of, without_trial

INTERVAL_SECONDS = 30.0


def end_trial(path: str, now: datetime) -> Generator[ApiRequest, ApiResponse, str]:
    """Yield the requests that end an overdue trial. Return what happened, or "".

    Args:
        path: the ConfigMap with the shared configuration.
    """
    found = yield ApiRequest(path)
    if found.status != 200:
        return f"the shared configuration cannot be read: {found.error_message}"
    metadata = found.body["metadata"]
    settings = json.loads(metadata.get("annotations", {}).get("config", "{}"))
    if not is_overdue(settings, now):
        return ""
    # A write of the operator, or of another member, wins.
    change = {"config": json.dumps(without_trial(settings))}
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": change}}
    response = yield ApiRequest(path, body)
    if response.status == 409:
        return ""
    if response.status != 200:
        return f"the trial cannot be ended: {response.error_message}"
    trial = trial_of(settings)
    return f"ended the trial of {trial['parameter']} = {trial['value']}"


def configuration_path(environment: Mapping[str, str]) -> str:
    """Return the path of the ConfigMap with the shared configuration."""
    cluster = environment["POD_NAME"].removesuffix("-0").rpartition("-")[0]
    return f"/api/v1/namespaces/{environment['POD_NAMESPACE']}/configmaps/{cluster}-config"


def main(arguments: list[str]) -> int:
    """Watch for an overdue trial until SIGTERM."""
    if arguments:
        sys.stderr.write("usage: steersman-instance trial\n")
        return 2
    stop = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda _signal, _frame: stop.set())
    path, copy = configuration_path(os.environ), PATHS.shared_settings
    last = ""
    while not stop.wait(INTERVAL_SECONDS):
        now = datetime.now(UTC)
        if not is_overdue(read_settings(copy), now):
            continue
        try:
            message = run_requests(end_trial(path, now), ApiClient("steersman-agent").send)
        except (ApiUnavailable, ValueError) as error:
            message = str(error)
        if message and message != last:
            sys.stderr.write(f"trial: {message}\n")
        last = message
    return 0
