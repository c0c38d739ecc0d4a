"""Queries of running Prometheus servers."""

from monitoring_operator.servers.client import HttpServers
from monitoring_operator.servers.report import Rejection, ServerReport, Servers, Unreachable

__all__ = ["HttpServers", "Rejection", "ServerReport", "Servers", "Unreachable"]
