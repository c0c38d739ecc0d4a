"""Structured logs: JSON for machines, aligned text for people."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol, cast

import structlog

LogFormat = Literal["json", "console"]
_SAMPLING_INITIAL = 100
_SAMPLING_THEREAFTER = 100

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


class SamplingFilter(logging.Filter):
    """Passes the first hundred lines a second with the same level and event, and of the others each hundredth.

    That one has ``dropped_lines``, so that nobody takes silence for health. Source: controller-runtime's ``zap.New``,
    whose production mode samples so.
    """

    def __init__(self) -> None:
        super().__init__()
        self._current_second = 0
        self._counts: dict[tuple[int, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether ``record`` is written."""
        second = int(record.created)
        if second != self._current_second:
            self._current_second, self._counts = second, {}
        # structlog hands over a line as its fields, libraries theirs as a text without its arguments.
        message = cast("str | dict[str, Any]", record.msg)
        key = record.levelno, str(message.get("event") if isinstance(message, dict) else message)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if count <= _SAMPLING_INITIAL:
            return True
        if count % _SAMPLING_THEREAFTER:
            return False
        if isinstance(message, dict):
            message["dropped_lines"] = _SAMPLING_THEREAFTER - 1
        return True


def configure_logging(level: LogLevel = "info", log_format: LogFormat = "json") -> None:
    """Sends all logs, those of libraries included, to standard error.

    Args:
        level: the least that is shown.
        log_format: ``json`` gives one object a line, and of a flood of equal events a sample (see ``FloodFilter``);
            ``console`` aligned text, and all.
    """
    shared_processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _merge_context,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared_processors, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    renderers: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    if log_format == "console":
        # Plain tracebacks: the coloured ones show local variables, passwords among them.
        plain = structlog.dev.plain_traceback
        renderers = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared_processors, _add_component],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    if log_format == "json" and level != "debug":
        handler.addFilter(SamplingFilter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


def _add_component(_: Any, __: str, event: Any) -> Any:
    event["component"] = event["_record"].name
    return event


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry ``name`` and whatever is bound to the running reconcile."""
    return structlog.get_logger(component=name)


@contextmanager
def suppress_logs() -> Generator[None]:
    """Loggers made in the block log nothing below ``critical``; for what is run a thousand times."""
    previous_config = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("critical"), cache_logger_on_first_use=False
    )
    try:
        yield
    finally:
        structlog.configure(**previous_config)


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
