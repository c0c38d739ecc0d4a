"""Tables of ``steersman top``."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from steersman_cli.debug_endpoint import format_triggers
from steersman_cli.top.load import ControllerLoad, SlowReconcile

_COLUMNS = ("controller", "state", "busy", "queue", "oldest", "delayed", "per s", "mean", "errors")
_SLOW_COLUMNS = ("seconds", "object", "result", "why")


def render(loads: Sequence[ControllerLoad], *, limit: int, note: str = "") -> RenderableType:
    """Return the controllers and their slowest reconciles.

    Args:
        loads: load of each controller.
        limit: number of slow reconciles.
        note: a line below the tables, such as an error.
    """
    slow = heapq.nlargest(limit, (each for load in loads for each in load.slow), key=lambda each: each.seconds)
    parts: list[RenderableType] = [_controllers(loads)]
    if slow:
        parts += ["", Text("Slowest running and recent reconciles", style="bold"), _slow_reconciles(slow)]
    return Group(*parts, *([Text(note, style="yellow")] if note else []))


def _controllers(loads: Sequence[ControllerLoad]) -> Table:
    table = _table(_COLUMNS, right_aligned=_COLUMNS[2:])
    for load in loads:
        errors = Text(str(load.errors), style="red" if load.errors_per_second else "")
        table.add_row(
            Text(load.name),
            Text(load.state, style="" if load.state == "active" else "dim"),
            f"{load.busy}/{load.workers}",
            str(load.waiting),
            _seconds(load.oldest_seconds),
            str(load.delayed),
            f"{load.reconciles_per_second:.1f}",
            _seconds(load.mean_seconds),
            errors,
        )
    return table


def _slow_reconciles(reconciles: Sequence[SlowReconcile]) -> Table:
    table = _table(_SLOW_COLUMNS, right_aligned=_SLOW_COLUMNS[:1])
    for each in reconciles:
        result = ", ".join([each.result or "running", *each.errors])
        name = "/".join(part for part in (each.namespace, each.name) if part)
        table.add_row(
            f"{each.seconds:.3f}",
            Text(f"{each.controller} {name}"),
            Text(result, style="red" if each.result == "error" else ""),
            Text(format_triggers(msgspec.to_builtins(each))),
        )
    return table


def _table(columns: Sequence[str], *, right_aligned: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right_aligned else "left", overflow="fold")
    return table


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
