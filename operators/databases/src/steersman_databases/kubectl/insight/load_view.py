"""Tables of a load."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.table import Table

from steersman_databases.core.sizes import format_bytes
from steersman_databases.kubectl.insight.load import CALLS, SECONDS, Load
from steersman_databases.kubectl.tables import plain_table

_BLOCK_BYTES = 8192
Column = Callable[[Mapping[str, float], float], str]
"""Function of a statement's increases and the seconds between the samples."""


def _per_call(name: str, factor: float = 1) -> Column:
    return lambda found, _: f"{factor * found[name] / found[CALLS]:.1f}"


def _bytes_per_second(name: str) -> Column:
    return lambda found, seconds: format_bytes(round(found[name] * _BLOCK_BYTES / seconds))


def _hit_percent(found: Mapping[str, float], _: float) -> str:
    requested = found["blocksHit"] + found["blocksRead"]
    return f"{100 * found['blocksHit'] / requested:.0f}" if requested else ""


_COLUMNS: Sequence[tuple[str, str, Column]] = (
    ("LOAD", SECONDS, lambda found, seconds: f"{found[SECONDS] / seconds:.2f}"),
    ("CALLS/S", CALLS, lambda found, seconds: f"{found[CALLS] / seconds:.1f}"),
    ("MS/CALL", SECONDS, _per_call(SECONDS, 1000)),
    ("ROWS/CALL", "rows", _per_call("rows")),
    ("READ/S", "blocksRead", _bytes_per_second("blocksRead")),
    ("HIT %", "blocksHit", _hit_percent),
    ("TEMP/S", "tempBlocks", _bytes_per_second("tempBlocks")),
    ("EXAMINED/CALL", "rowsExamined", _per_call("rowsExamined")),
    ("TEMP TABLES/S", "tempTables", lambda found, seconds: f"{found['tempTables'] / seconds:.1f}"),
)
"""Title, the counter that the engine must have, and the cell."""


def render(load: Load) -> Iterator[Table | str]:
    """Yield the parts of the output, without control characters of clients."""
    seconds, totals = load.interval_seconds, load.totals
    rates = (
        ""
        if totals is None
        else f": {totals[SECONDS] / seconds:.1f} statements at a time, {totals[CALLS] / seconds:.1f} calls/s"
    )
    yield f"{load.instance} in {seconds:.1f} s{rates}"
    yield ""
    sessions = [(str(one.count), one.state, one.wait or "") for one in load.sessions]
    yield plain_table(("SESSIONS", "STATE", "WAIT"), sessions) if sessions else "No sessions of clients."
    if load.running:
        yield ""
        yield _running(load)
    yield ""
    if totals is None:
        yield load.note
    elif load.statements:
        yield _statements(load, totals)
    else:
        yield "No statement ended between the two samples."


def _running(load: Load) -> Table:
    columns = ("SECONDS", "SESSION", "USER", "DATABASE", "WAIT", "RUNNING STATEMENT")
    rows = [
        (
            f"{one.seconds:.0f}",
            str(one.session),
            one.user or "",
            one.database or "",
            one.wait or "",
            one.statement or "",
        )
        for one in load.running
    ]
    return plain_table(columns, rows, shorten_last=True)


def _statements(load: Load, totals: Mapping[str, float]) -> Table:
    columns = [(title, cell) for title, name, cell in _COLUMNS if name in totals]
    # MySQL counts by database, and not by user.
    by_user = any(one.user for one in load.statements)
    rows = [
        (
            *(cell(one.increases, load.interval_seconds) for _, cell in columns),
            *([one.user] if by_user else []),
            one.database,
            one.statement or one.id,
        )
        for one in load.statements
    ]
    titles = [title for title, _ in columns]
    return plain_table((*titles, *(["USER"] if by_user else []), "DATABASE", "STATEMENT"), rows, shorten_last=True)
