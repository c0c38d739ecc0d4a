"""Client for Redis nodes, and reports on their state."""

from redis_operator.nodes.protocol import Address, Command, LoginRejected, Redis, RedisError, Reply, Unreachable
from redis_operator.nodes.report import NodeEntry, NodeReport, fetch_report, fetch_reports
from redis_operator.nodes.slots import ALL_SLOTS, SLOT_COUNT, Slots

__all__ = [
    "ALL_SLOTS",
    "SLOT_COUNT",
    "Address",
    "Command",
    "LoginRejected",
    "NodeEntry",
    "NodeReport",
    "Redis",
    "RedisError",
    "Reply",
    "Slots",
    "Unreachable",
    "fetch_report",
    "fetch_reports",
]
