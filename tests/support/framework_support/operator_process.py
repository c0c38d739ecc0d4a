"""Operator process with access to logs, metrics and memory."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from steersman_testing.envtest.process import ServerProcess

PROGRAM = Path(__file__).with_name("gadget.py")


class OperatorProcess:
    """A running ``gadget.py``.

    Args:
        directory: directory of the log.
        kubeconfig: kubeconfig of the API server or of a proxy.
        namespace: namespace that the operator watches.
        arguments: further options of the program.
        name: name of the instance.
    """

    def __init__(self, directory: Path, kubeconfig: Path, namespace: str, *arguments: str, name: str = "a") -> None:
        self.log = directory / f"operator-{name}.log"
        command = [sys.executable, str(PROGRAM), "--kubeconfig", str(kubeconfig), "--namespace", namespace]
        self._process = ServerProcess([*command, "--instance", name, *arguments], self.log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs. Negative: number of the signal that ended it."""
        return self._process.exit_code

    def signal(self, number: signal.Signals) -> None:
        self._process.signal(number)

    def log_lines(self) -> Iterator[dict[str, Any]]:
        """Log lines so far. A line that is not JSON becomes ``{"event": text}``."""
        for line in self.log.read_text(errors="replace").splitlines() if self.log.exists() else ():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                yield {"event": line}

    def log_lines_with_event(self, event: str) -> list[dict[str, Any]]:
        """Log lines with an event."""
        return [line for line in self.log_lines() if line.get("event") == event]

    async def wait_for_log(self, event: str, seconds: float = 60.0) -> dict[str, Any]:
        """Wait for the first line with an event. Raises RuntimeError if the process exits."""
        async with asyncio.timeout(seconds):
            while True:
                if found := self.log_lines_with_event(event):
                    return found[0]
                if self.exit_code is not None:
                    raise RuntimeError(f"the operator exited with {self.exit_code}:\n{self._process.log_tail(40)}")
                await asyncio.sleep(0.05)

    async def wait_until_exited(self, seconds: float = 60.0) -> int:
        """Wait for the exit code."""
        async with asyncio.timeout(seconds):
            while (code := self.exit_code) is None:
                await asyncio.sleep(0.02)
            return code

    async def metrics(self) -> dict[str, float]:
        """Metrics by ``name{label="value"}``, and sums over all labels by ``name``."""
        port = next(line["port"] for line in self.log_lines_with_event("listening") if "/metrics" in line["paths"])
        text = await asyncio.to_thread(_read, f"http://127.0.0.1:{port}/metrics")
        totals: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
                labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
                totals[f"{sample.name}{{{labels}}}"] = sample.value
        return totals

    def rss_mib(self) -> float:
        """Resident memory in MiB."""
        return _status_mib(self.pid, "VmRSS:")

    def peak_rss_mib(self) -> float:
        """Peak resident memory in MiB."""
        return _status_mib(self.pid, "VmHWM:")

    def kill(self) -> None:
        """Kill the process, even if it is stopped."""
        self._process.kill()


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def _status_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/status has no {field}")
