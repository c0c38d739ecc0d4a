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
_UNSAMPLED = 100
_SAMPLE = 100

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


class FloodFilter(logging.Filter):
    """Passes the first hundred lines a second with the same level and event, and of the others each hundredth.

    That one has ``left_out``, so that nobody takes silence for health. Source: controller-runtime's ``zap.New``,
    whose production mode samples so.
    """

    def __init__(self) -> None:
        super().__init__()
        self._second = 0
        self._seen: dict[tuple[int, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether ``record`` is written."""
        second = int(record.created)
        if second != self._second:
            self._second, self._seen = second, {}
        # structlog hands over a line as its fields, libraries theirs as a text without its arguments.
        said = cast("str | dict[str, Any]", record.msg)
        same = record.levelno, str(said.get("event") if isinstance(said, dict) else said)
        number = self._seen[same] = self._seen.get(same, 0) + 1
        if number <= _UNSAMPLED:
            return True
        if number % _SAMPLE:
            return False
        if isinstance(said, dict):
            said["left_out"] = _SAMPLE - 1
        return True


def configure_logging(level: LogLevel = "info", output: LogFormat = "json") -> None:
    """Sends all logs, those of libraries included, to standard error.

    Args:
        level: the least that is shown.
        output: ``json`` gives one object a line, and of a flood of equal events a sample (see ``FloodFilter``);
            ``console`` aligned text, and all.
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
    if output == "json" and level != "debug":
        handler.addFilter(FloodFilter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


def _name_component(_: Any, __: str, event: Any) -> Any:
    event["component"] = event["_record"].name
    return event


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger whose lines carry ``name`` and whatever is bound to the running reconcile."""
    return structlog.get_logger(component=name)


@contextmanager
def silence() -> Generator[None]:
    """Loggers made in the block log nothing below ``critical``; for what is run a thousand times."""
    former = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("critical"), cache_logger_on_first_use=False
    )
    try:
        yield
    finally:
        structlog.configure(**former)


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
