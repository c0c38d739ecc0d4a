"""Redis' nodes: how to talk to one, and what it says of its cluster."""

from redis_operator.nodes.port import Address, Command, LoginRejected, Redis, RedisError, Reply, Unreachable
from redis_operator.nodes.report import Entry, Report, look, reports_of
from redis_operator.nodes.slots import ALL, SLOTS, Slots

__all__ = [
    "ALL",
    "SLOTS",
    "Address",
    "Command",
    "Entry",
    "LoginRejected",
    "Redis",
    "RedisError",
    "Reply",
    "Report",
    "Slots",
    "Unreachable",
    "look",
    "reports_of",
]
