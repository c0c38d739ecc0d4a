"""Structured logs: JSON for machines, aligned text for people."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Literal, Protocol

import structlog

LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]


class LogContext(Protocol):
    """Work in progress that log lines should name."""

    def log_fields(self) -> Mapping[str, object]:
        """What each line carries; asked for only when a line is written."""
        ...


log_context: ContextVar[LogContext | None] = ContextVar("log_context", default=None)
"""What runs here, such as a reconcile. One object set, rather than each field bound, since most work logs nothing."""


def _merge_context(_: Any, __: str, event: Any) -> Any:
    context = log_context.get()
    return event if context is None else {**context.log_fields(), **event}


def configure_logging(level: LogLevel = "info", output: LogFormat = "json") -> None:
    """Sends all logs, those of libraries included, to standard error.

    Args:
        level: the least that is shown.
        output: ``json`` gives one object a line; ``console`` aligned text.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _merge_context,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    rendering: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    if output == "console":
        # Plain tracebacks: the coloured ones show local variables, passwords among them.
        plain = structlog.dev.plain_traceback
        rendering = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_component],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


def _name_component(_: Any, __: str, event: Any) -> Any:
    event["component"] = event["_record"].name
    return event


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry ``name`` and whatever is bound to the running reconcile."""
    return structlog.get_logger(component=name)


if not structlog.is_configured():
    # Until an operator chooses: through the standard library's logging, and without local variables in tracebacks,
    # which structlog's own default shows, passwords among them.
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _merge_context,
            structlog.stdlib.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger("info"),
    )
