"""Structured logs as JSON or aligned text."""

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
    """Work in progress whose fields are added to log lines."""

    def log_fields(self) -> Mapping[str, object]:
        """Fields to add to a log line."""
        ...

    @property
    def reason(self) -> str:
        """The cause of the work, without values of objects."""
        ...


log_context: ContextVar[LogContext | None] = ContextVar("log_context", default=None)
"""The work in progress, such as a reconcile. Its fields are computed only when a line is written."""


def _merge_context(_: Any, __: str, event: Any) -> Any:
    context = log_context.get()
    return event if context is None else {**context.log_fields(), **event}


class SamplingFilter(logging.Filter):
    """Samples log lines with the same level and event.

    The first 100 lines in a second are logged, then every 100th, which has the field ``dropped_lines``. Source:
    controller-runtime's ``zap.New`` in production mode.
    """

    def __init__(self) -> None:
        super().__init__()
        self._current_second = 0
        self._counts: dict[tuple[int, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if ``record`` is logged."""
        second = int(record.created)
        if second != self._current_second:
            self._current_second, self._counts = second, {}
        # Lines of structlog are dictionaries, those of other libraries are format strings.
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
    """Write all logs, including those of libraries, to standard error.

    Args:
        level: minimum level.
        log_format: ``json`` writes one object per line, and samples repeated events (see ``SamplingFilter``).
            ``console`` writes aligned text without sampling.
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
        # Coloured tracebacks show local variables, which may contain passwords.
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
    """A logger for the component ``name``.

    Its lines have the fields of the running reconcile.
    """
    return structlog.get_logger(component=name)


@contextmanager
def suppress_logs() -> Generator[None]:
    """Suppress lines below ``critical`` of loggers created in the block."""
    previous_config = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("critical"), cache_logger_on_first_use=False
    )
    try:
        yield
    finally:
        structlog.configure(**previous_config)


if not structlog.is_configured():
    # Default until configure_logging is called. Unlike structlog's default, tracebacks have no local variables, which
    # may contain passwords.
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
