"""Port to the probe of object stores, and its processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import asdict
from typing import Any, Protocol

from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem
from steersman_databases.features.backup_store.layout import ArchiveIdentity
from steersman_databases.features.backup_store.listing import MAX_LISTING_BYTES, StoreListing, parse_listing
from steersman_databases.features.backup_store.probe import TIMEOUT_SECONDS
from steersman_databases.features.backup_store.report import MAX_REPORT_BYTES, ProbeReport, parse_report

_MODULE = "steersman_databases.features.backup_store.probe"
_MAX_PROCESSES = 2
_UNRESPONSIVE = ProbeReport(
    reason="StoreUnresponsive",
    message=f"the object store does not respond within {TIMEOUT_SECONDS} s. Check it and the network",
)
_NO_REPORT = ProbeReport(reason="StoreUnreachable", message="the probe process ended without a report")
# Without variables of proxies or of cloud providers: pods do not have them either.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LD_LIBRARY_PATH", "SSL_CERT_DIR")


class StoreProbe(Protocol):
    """Verification of object stores."""

    async def check(self, access: StoreAccess) -> ProbeReport:
        """Verify connection, credentials, bucket and conditional writes."""
        ...

    async def claim(self, access: StoreAccess, path: str, identity: ArchiveIdentity) -> None:
        """Create or verify ``steersman.json`` in a path.

        Args:
            path: path of the archive below the prefix.

        Raises:
            StoreProblem: the store cannot be used, or the path belongs to another cluster.
        """
        ...


class ProbeProcess:
    """Starts a process for each probe, at most two at once."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_MAX_PROCESSES)

    async def check(self, access: StoreAccess) -> ProbeReport:
        """Implements ``StoreProbe``."""
        return await self._run({"operation": "check", "access": asdict(access)})

    async def claim(self, access: StoreAccess, path: str, identity: ArchiveIdentity) -> None:
        """Implements ``StoreProbe``."""
        content = identity.to_json().decode()
        report = await self._run({"operation": "claim", "access": asdict(access), "path": path, "identity": content})
        if not report.ok:
            raise StoreProblem(report.reason, report.message)

    async def list(self, access: StoreAccess, path: str = "") -> StoreListing:
        """Return the archives in a store, or the backups of one archive.

        Args:
            path: path of the archive below the prefix.
        """
        request = {"operation": "list", "access": asdict(access), "path": path}
        output, problem = await self._output(request)
        if problem is not None:
            return StoreListing(reason=problem.reason, message=problem.message)
        try:
            return parse_listing(output[:MAX_LISTING_BYTES])
        except ValueError:
            return StoreListing(reason=_NO_REPORT.reason, message=_NO_REPORT.message)

    async def _run(self, request: dict[str, Any]) -> ProbeReport:
        output, problem = await self._output(request)
        if problem is not None:
            return problem
        try:
            return parse_report(output[:MAX_REPORT_BYTES])
        except ValueError:
            return _NO_REPORT

    async def _output(self, request: dict[str, Any]) -> tuple[bytes, ProbeReport | None]:
        """Run the program. Return its output, or the problem."""
        async with self._slots:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                _MODULE,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    output, _ = await process.communicate(json.dumps(request).encode())
            except TimeoutError:
                return b"", _UNRESPONSIVE
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        return output, None
