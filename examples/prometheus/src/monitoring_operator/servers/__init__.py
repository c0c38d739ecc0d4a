"""Queries of running Prometheus servers."""

from monitoring_operator.servers.client import HttpServers
from monitoring_operator.servers.report import ServerReport, Servers, Unreachable

__all__ = ["HttpServers", "ServerReport", "Servers", "Unreachable"]
