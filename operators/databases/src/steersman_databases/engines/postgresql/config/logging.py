"""Parameters of the server's logs."""

from __future__ import annotations

from collections.abc import Mapping

LINE_PREFIX = "%m [%p] sqlstate=%e queryid=%Q user=%u db=%d app=%a "
"""Prefix of each message. The names that clients choose come last.

Source: PostgreSQL 15 documentation, 20.8.3 "What To Log". `kubectl steersman logs --slow` reads it.
"""


def parameters(slow_statement_seconds: float | None) -> Mapping[str, str]:
    """Return the parameters. A running server applies all of them.

    Args:
        slow_statement_seconds: duration from which on a statement is logged. None for no statement.
    """
    found = {"log_line_prefix": LINE_PREFIX, "compute_query_id": "on"}
    if slow_statement_seconds is None:
        return found
    milliseconds = max(round(slow_statement_seconds * 1000), 1)
    # Values of parameters are often personal, and the text of the statement suffices to find it.
    return {**found, "log_min_duration_statement": f"{milliseconds}ms", "log_parameter_max_length": "0"}
