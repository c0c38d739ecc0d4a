"""Reports of servers about their configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

_RULE_FILES = re.compile(r"^rule_files:\n((?:- .*\n)+)", re.MULTILINE)
_REVISION = re.compile(r"(?:^|[/ ])([0-9a-f]{16})/rules/\*\.yaml$", re.MULTILINE)
_REJECTION = re.compile(r"[/ ]rejected/([0-9a-f]{16})/([^/\n]+)/((?:[0-9a-f]{2})*)\*$", re.MULTILINE)
_RELOAD_SUCCESSFUL = re.compile(r"^prometheus_config_last_reload_successful 1(?:\.0)?$", re.MULTILINE)


class Unreachable(Exception):
    """The server does not respond, or not as Prometheus does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A file that promtool rejected.

    Attributes:
        revision: revision of the file.
        file: a rule file, or ``prometheus.yaml`` for the whole configuration.
        reason: output of promtool.
    """

    revision: str
    file: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """Configuration of a running server.

    Attributes:
        revision: revision of the configuration. Empty if the operator did not write it.
        is_applied: all parts of the server use the configuration: its last reload succeeded.
        rejections: rejected rule files of this revision, or a later revision that was rejected as a whole.
    """

    revision: str
    is_applied: bool = True
    rejections: tuple[Rejection, ...] = ()


class Servers(Protocol):
    """Access to the servers. Tests replace it by a model."""

    async def report(self, ip: str) -> ServerReport:
        """Return the report of the server at ``ip``.

        Raises:
            Unreachable: there is no valid response.
        """
        ...


def parse_report(configuration: str, metrics: str) -> ServerReport:
    """Return the report in the responses of a server.

    Both are needed. After a failed reload, the server reports the new configuration, although some of its parts use
    the previous one. The metric does not say which configuration was loaded.

    Args:
        configuration: the YAML of ``/api/v1/status/config``.
        metrics: the response of ``/metrics``.
    """
    rule_files = found[1] if (found := _RULE_FILES.search(configuration)) else ""
    revision = _REVISION.search(rule_files)
    return ServerReport(
        revision=revision[1] if revision else "",
        is_applied=_RELOAD_SUCCESSFUL.search(metrics) is not None,
        rejections=tuple(
            Rejection(revision=each[1], file=each[2], reason=bytes.fromhex(each[3]).decode(errors="replace").strip())
            for each in _REJECTION.finditer(rule_files)
        ),
    )
