"""Models of Prometheus with its reloader."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from steersman.api.core_v1 import Pod

from monitoring_operator.servers import Rejection, ServerReport, Unreachable

BAD_EXPRESSION = "up =="
"""Expression that promtool rejects."""
BAD_PARAMETER = "rejected-by-promtool"
"""Text in a monitor for which promtool rejects the whole configuration."""


@dataclass(slots=True)
class _Server:
    ip: str
    report: ServerReport
    seen: str = ""


class ModelServers:
    """Runs model servers for the kubelet, and reports for the operator.

    Attributes:
        unreachable: IPs of servers that do not respond.
        frozen: True if reloaders ignore changes.
        texts: configuration that each server runs, by IP.
        loaded: all revisions that a server has run.
    """

    def __init__(self) -> None:
        self.unreachable: set[str] = set()
        self.frozen = False
        self.texts: dict[str, str] = {}
        self.loaded: set[str] = set()
        self._servers: dict[str, _Server] = {}
        self._numbers = itertools.count(1)

    async def report(self, ip: str) -> ServerReport:
        server = next((each for each in self._servers.values() if each.ip == ip), None)
        if server is None or ip in self.unreachable:
            raise Unreachable(f"{ip}: connection refused")
        return server.report

    async def start(self, pod: Pod, files: Mapping[str, bytes]) -> str:
        server = _Server(f"10.0.0.{next(self._numbers)}", ServerReport(revision=""))
        self._servers[pod.metadata.uid] = server
        self._load(server, files)
        return server.ip

    async def sync(self, pod: Pod, files: Mapping[str, bytes]) -> None:
        server = self._servers[pod.metadata.uid]
        if not self.frozen and files["revision"].decode() != server.seen:
            self._load(server, files)

    async def stop(self, uid: str) -> None:
        server = self._servers.pop(uid, None)
        if server is not None:
            self.texts.pop(server.ip, None)

    @property
    def revisions(self) -> set[str]:
        """Revisions that the servers run."""
        return {server.report.revision for server in self._servers.values()}

    def _load(self, server: _Server, files: Mapping[str, bytes]) -> None:
        server.seen = files["revision"].decode()
        text = gzip.decompress(files["prometheus.yaml.gz"]).decode()
        if BAD_PARAMETER in text:
            rejection = Rejection(revision=server.seen, file="prometheus.yaml", reason=BAD_PARAMETER)
            server.report = replace(server.report, rejections=(rejection,))
            return
        rejections = [
            Rejection(revision=server.seen, file=name.removesuffix(".gz"), reason="could not parse expression")
            for name, content in sorted(files.items())
            if name.startswith("rules-") and f"expr: {BAD_EXPRESSION}\n" in gzip.decompress(content).decode()
        ]
        self.texts[server.ip] = text
        self.loaded.add(server.seen)
        server.report = ServerReport(revision=server.seen, rejections=tuple(rejections))
