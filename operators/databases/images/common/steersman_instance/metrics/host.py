"""Collectors of the pod: volumes, certificates, and reports of its processes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cryptography import x509

from ..resource_usage.present import present_use
from . import local_request
from .catalog import CollectFailed, Metric, Reading, Sample

_VOLUME = ("volume",)
VOLUME_SIZE = Metric("steersman_volume_size_bytes", "Size of the volume.", _VOLUME)
VOLUME_AVAILABLE = Metric("steersman_volume_available_bytes", "Space that the server can use.", _VOLUME)
VOLUME_INODES = Metric("steersman_volume_available_inodes", "Files that can be created.", _VOLUME)
NOT_AFTER = Metric(
    "steersman_certificate_not_after_timestamp_seconds",
    "End of validity of the certificate, in seconds since 1970.",
    ("certificate",),
)


class HostSession:
    """The session of collectors that need no server."""

    def close(self) -> None:
        """See `ClosableSession.close`."""


@dataclass(frozen=True)
class Volumes:
    """Size and free space of the volumes that are mounted."""

    paths: Mapping[str, Path]
    name: str = "volumes"
    interval_seconds: float = 15.0
    metrics: Sequence[Metric] = (VOLUME_SIZE, VOLUME_AVAILABLE, VOLUME_INODES)

    def collect(self, session: HostSession) -> Reading:
        """See `Collector.collect`."""
        samples: list[Sample] = []
        for name, path in self.paths.items():
            try:
                found = os.statvfs(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CollectFailed(f"volume {name}: {error}") from error
            samples += [
                Sample(VOLUME_SIZE, (name,), found.f_blocks * found.f_frsize),
                Sample(VOLUME_AVAILABLE, (name,), found.f_bavail * found.f_frsize),
                Sample(VOLUME_INODES, (name,), found.f_favail),
            ]
        return Reading(samples)


@dataclass(frozen=True)
class Certificates:
    """End of validity of mounted certificates."""

    paths: Mapping[str, Path]
    name: str = "certificates"
    interval_seconds: float = 60.0
    metrics: Sequence[Metric] = (NOT_AFTER,)

    def collect(self, session: HostSession) -> Reading:
        """See `Collector.collect`."""
        samples: list[Sample] = []
        for name, path in self.paths.items():
            try:
                certificate = x509.load_pem_x509_certificate(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                raise CollectFailed(f"certificate {name}: {error}") from error
            samples.append(Sample(NOT_AFTER, (name,), certificate.not_valid_after_utc.timestamp()))
        return Reading(samples)


CPU = Metric("steersman_server_cpu_cores", "Cores that the server's container used in the last 10 seconds.")
MEMORY = Metric("steersman_server_memory_bytes", "Memory of the server's container that the kernel cannot reclaim.")


@dataclass(frozen=True)
class ServerUse:
    """Use of CPU and memory, as the server's container reports it."""

    path: Path
    clock: Callable[[], float] = time.time
    name: str = "server_use"
    interval_seconds: float = 10.0
    metrics: Sequence[Metric] = (CPU, MEMORY)

    def collect(self, session: HostSession) -> Reading:
        """See `Collector.collect`."""
        values = zip(self.metrics, present_use(self.path, self.clock()), strict=True)
        return Reading([Sample(metric, (), value) for metric, value in values if value is not None])


PATRONI_LEADER = Metric("steersman_patroni_leader", "1 if this instance holds the leader lock.")
PATRONI_RUNNING = Metric("steersman_patroni_postgresql_running", "1 if Patroni reports a running server.")
PATRONI_PAUSED = Metric("steersman_patroni_paused", "1 if Patroni does not manage the cluster.")
PATRONI_FAILSAFE = Metric("steersman_patroni_failsafe", "1 if the primary serves although the API server is lost.")
_PRIMARY_ROLES = ("master", "primary")


@dataclass(frozen=True)
class Patroni:
    """State of Patroni by its REST API.

    Source: Patroni 4.0 documentation, "Patroni REST API", GET /patroni.
    """

    authorities: Path
    host: str = "127.0.0.1"
    port: int = 8008
    name: str = "patroni"
    interval_seconds: float = 10.0
    metrics: Sequence[Metric] = (PATRONI_LEADER, PATRONI_RUNNING, PATRONI_PAUSED, PATRONI_FAILSAFE)

    def collect(self, session: HostSession) -> Reading:
        """See `Collector.collect`."""
        try:
            _, body = local_request.get(self.port, "/patroni", self.authorities, self.host)
            reported = _mapping(json.loads(body))
        except (local_request.RequestFailed, ValueError) as error:
            raise CollectFailed(f"Patroni: {error}") from error
        values = {
            PATRONI_LEADER: reported.get("role") in _PRIMARY_ROLES,
            PATRONI_RUNNING: reported.get("state") == "running",
            PATRONI_PAUSED: reported.get("pause") is True,
            PATRONI_FAILSAFE: reported.get("failsafe_mode_is_active") is True,
        }
        return Reading([Sample(metric, (), float(value)) for metric, value in values.items()])


ERRANT = Metric("steersman_mysql_errant", "1 if the instance has transactions that the group does not have.")
MEMBER_STATES = ("Empty", "Stopped", "Starting", "Cloning", "Offline", "Joining", "Recovering", "Online", "Failed")
MEMBER_STATE = Metric("steersman_mysql_member_state", "1 for the state that the agent reports.", ("state",))


@dataclass(frozen=True)
class AgentReport:
    """The member as its agent reports it, even without the server."""

    path: Path
    name: str = "agent"
    interval_seconds: float = 10.0
    metrics: Sequence[Metric] = (MEMBER_STATE, ERRANT)

    def collect(self, session: HostSession) -> Reading:
        """See `Collector.collect`."""
        try:
            reported = _mapping(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return Reading(())
        except (OSError, ValueError) as error:
            raise CollectFailed(f"report of the agent: {error}") from error
        errant = bool(reported.get("errantGtids")) or reported.get("maybeErrant") is True
        return Reading(
            [
                *(Sample(MEMBER_STATE, (one,), float(reported.get("state") == one)) for one in MEMBER_STATES),
                Sample(ERRANT, (), float(errant)),
            ]
        )


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return cast(Mapping[str, Any], value)
