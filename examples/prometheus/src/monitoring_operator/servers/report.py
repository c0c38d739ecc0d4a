"""Reports of servers about their configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

_RULE_FILES = re.compile(r"^rule_files:\n- (?:\S*/)?([0-9a-f]+)(-partial)?/rules/\*\.yaml$", re.MULTILINE)
_RELOAD_SUCCESSFUL = re.compile(r"^prometheus_config_last_reload_successful 1(?:\.0)?$", re.MULTILINE)


class Unreachable(Exception):
    """The server does not respond, or not as Prometheus does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """Configuration of a running server.

    Attributes:
        revision: revision of the configuration. Empty if the operator did not write it.
        is_partial: the server runs without rule files that promtool rejected.
        is_applied: all parts of the server use the configuration: its last reload succeeded.
    """

    revision: str
    is_partial: bool = False
    is_applied: bool = True


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
    found = _RULE_FILES.search(configuration)
    return ServerReport(
        revision=found[1] if found else "",
        is_partial=bool(found and found[2]),
        is_applied=_RELOAD_SUCCESSFUL.search(metrics) is not None,
    )
