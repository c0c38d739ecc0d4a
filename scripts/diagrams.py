"""Render the diagrams of ``scripts/diagrams`` as SVG in ``docs/assets``.

A file with ``row`` is a timeline. Other files have boxes and arrows.

``--check`` only lists outdated files, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import math
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Literal

import msgspec

SOURCES = Path(__file__).parent / "diagrams"
ASSETS = Path(__file__).parents[1] / "docs" / "assets"
_HEIGHT, _GAP, _ROW, _MARGIN = 56, 50, 90, 24
_ARROW_MARKER = (
    '  <defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
    ' orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="#3949ab"/></marker></defs>'
)

Point = tuple[float, float]


class Box(msgspec.Struct, forbid_unknown_fields=True):
    """A box at column and row; ``outside`` is external, ``strong`` is emphasised."""

    name: str
    at: tuple[int, int]
    title: str
    lines: Sequence[str] = ()
    outside: bool = False
    strong: bool = False


class Group(msgspec.Struct, forbid_unknown_fields=True):
    """A frame around several rows of a column."""

    title: str
    at: tuple[int, int]
    rows: int


class Arrow(msgspec.Struct, forbid_unknown_fields=True):
    """An arrow between named boxes, through waypoints right of grid positions."""

    path: Sequence[str | tuple[int, int]]
    number: int | None = None
    both: bool = False
    dashed: bool = False


class Diagram(msgspec.Struct, forbid_unknown_fields=True):
    """A diagram with column widths; ``label`` is its alternative text."""

    label: str
    columns: Sequence[int]
    rows: int
    box: Sequence[Box]
    arrow: Sequence[Arrow]
    group: Sequence[Group] = ()

    def left(self, column: int) -> int:
        return _MARGIN + sum(self.columns[:column]) + _GAP * column

    def center(self, at: tuple[int, int]) -> Point:
        return self.left(at[0]) + self.columns[at[0]] / 2, _MARGIN + 16 + at[1] * _ROW + _HEIGHT / 2

    def edge(self, at: tuple[int, int], towards: Point) -> Point:
        """Return where the line to a point leaves the box."""
        x, y = self.center(at)
        dx, dy = towards[0] - x, towards[1] - y
        wide, high = self.columns[at[0]] / 2 + 3, _HEIGHT / 2 + 3
        scale = min(wide / abs(dx) if dx else math.inf, high / abs(dy) if dy else math.inf)
        return x + dx * scale, y + dy * scale


def render_svg(diagram: Diagram) -> str:
    """Render the diagram as SVG."""
    width = diagram.left(len(diagram.columns)) - _GAP + _MARGIN + 20
    height = 2 * _MARGIN + 16 + (diagram.rows - 1) * _ROW + _HEIGHT
    boxes = {box.name: box for box in diagram.box}
    return "\n".join(
        [
            _head(width, height, diagram.label),
            f'  <rect width="{width}" height="{height}" rx="8" fill="#fafafa"/>',
            _ARROW_MARKER,
            *(line for group in diagram.group for line in _frame(diagram, group)),
            *(line for box in diagram.box for line in _box(diagram, box)),
            *(line for arrow in diagram.arrow for line in _arrow(diagram, arrow, boxes)),
            "</svg>",
            "",
        ]
    )


def _head(width: int, height: int, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="14"'
        f' font-family="system-ui, sans-serif" role="img" aria-label="{escape(label)}">'
    )


def _frame(diagram: Diagram, group: Group) -> Iterator[str]:
    column, row = group.at
    left, top = diagram.left(column) - 12, _MARGIN + 16 + row * _ROW - 26
    width, height = diagram.columns[column] + 24, (group.rows - 1) * _ROW + _HEIGHT + 38
    yield f'  <rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="#eceff1"/>'
    yield f'  <text x="{left + 12}" y="{top + 18}" font-size="12" fill="#616161">{escape(group.title)}</text>'


def _box(diagram: Diagram, box: Box) -> Iterator[str]:
    x, y = diagram.center(box.at)
    wide = diagram.columns[box.at[0]]
    fill = "#c5cae9" if box.strong else "#e8eaf6" if box.outside else "#fff"
    yield (
        f'  <rect x="{x - wide / 2:g}" y="{y - _HEIGHT / 2:g}" width="{wide}" height="{_HEIGHT}" rx="6"'
        f' fill="{fill}" stroke="#3949ab" stroke-width="1.5"/>'
    )
    top = y + 5 - 9 * len(box.lines)
    text = 'text-anchor="middle" fill="#212121"'
    yield f'  <text x="{x:g}" y="{top:g}" {text} font-weight="600">{escape(box.title)}</text>'
    for number, line in enumerate(box.lines, 1):
        small = 'text-anchor="middle" font-size="12" fill="#616161"'
        yield f'  <text x="{x:g}" y="{top + 19 * number:g}" {small}>{escape(line)}</text>'


def _arrow(diagram: Diagram, arrow: Arrow, boxes: Mapping[str, Box]) -> Iterator[str]:
    first, *between, last = arrow.path
    assert isinstance(first, str) and isinstance(last, str)
    start, end = boxes[first].at, boxes[last].at
    waypoints = [_gap_point(diagram, place) for place in between if not isinstance(place, str)]
    points = [
        diagram.edge(start, (waypoints or [diagram.center(end)])[0]),
        *waypoints,
        diagram.edge(end, (waypoints or [diagram.center(start)])[-1]),
    ]
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    ends = 'marker-end="url(#tip)"' + (' marker-start="url(#tip)"' if arrow.both else "")
    dashes = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    yield f'  <polyline points="{line}" fill="none" stroke="#3949ab" stroke-width="1.5"{dashes} {ends}/>'
    if arrow.number is not None:
        middle = len(points) // 2
        x, y = ((points[middle - 1][axis] + points[middle][axis]) / 2 for axis in (0, 1))
        yield f'  <circle cx="{x:g}" cy="{y:g}" r="10" fill="#3949ab"/>'
        text = 'text-anchor="middle" font-size="12" font-weight="600" fill="#fff"'
        yield f'  <text x="{x:g}" y="{y + 4:g}" {text}>{arrow.number}</text>'


def _gap_point(diagram: Diagram, position: tuple[int, int]) -> Point:
    return diagram.left(position[0]) + diagram.columns[position[0]] + _GAP / 2, diagram.center(position)[1]


class Span(msgspec.Struct, forbid_unknown_fields=True):
    """A bar between two positions; ``none`` is only a text."""

    begin: int
    end: int
    text: str = ""
    tone: Literal["strong", "soft", "none"] = "soft"


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """A component with its bars, and a note below them."""

    title: str
    spans: Sequence[Span]
    note: str = ""


class Tick(msgspec.Struct, forbid_unknown_fields=True):
    """A moment, as a line through all rows."""

    at: int
    text: str


class Timeline(msgspec.Struct, forbid_unknown_fields=True):
    """Rows over an axis from 0 to 100, with an alternative text."""

    label: str
    ticks: Sequence[Tick]
    row: Sequence[Row]
    footer: str = ""


_AXIS_LEFT, _AXIS_WIDTH, _TIMELINE_ROW, _BAR = 150, 590, 62, 28
_CHARACTER_WIDTH = 6.2
_MAX_TITLE_CHARACTERS = 16


def render_timeline(timeline: Timeline) -> str:
    """Render the timeline as SVG.

    Raises:
        ValueError: a text is wider than its bar.
    """
    width, bottom = _AXIS_LEFT + _AXIS_WIDTH + 20, 44 + len(timeline.row) * _TIMELINE_ROW
    height = bottom + (30 if timeline.footer else 6)
    footer = (
        f'  <text x="{width / 2:g}" y="{bottom + 16}" {_NOTE} text-anchor="middle">{escape(timeline.footer)}</text>'
    )
    return "\n".join(
        [
            _head(width, height, timeline.label),
            f'  <rect width="{width}" height="{height}" rx="8" fill="#fafafa"/>',
            *(line for tick in timeline.ticks for line in _tick(tick, bottom)),
            *(line for number, row in enumerate(timeline.row) for line in _row(row, 48 + number * _TIMELINE_ROW)),
            *([footer] if timeline.footer else []),
            "</svg>",
            "",
        ]
    )


_NOTE = 'font-size="12" fill="#616161"'
_TONES = {"strong": ('fill="#3949ab"', "#fff"), "soft": ('fill="#e8eaf6" stroke="#3949ab"', "#212121")}


def _position(at: int) -> float:
    return _AXIS_LEFT + at * _AXIS_WIDTH / 100


def _tick(tick: Tick, bottom: int) -> Iterator[str]:
    x = _position(tick.at)
    yield f'  <path d="M{x:g} 36V{bottom}" stroke="#9e9e9e" stroke-dasharray="3 4"/>'
    anchor = "start" if tick.at == 0 else "end" if tick.at == 100 else "middle"
    yield f'  <text x="{x:g}" y="26" {_NOTE} text-anchor="{anchor}">{escape(tick.text)}</text>'


def _row(row: Row, top: int) -> Iterator[str]:
    if len(row.title) > _MAX_TITLE_CHARACTERS:
        raise ValueError(f"{row.title!r} is too long for its column")
    yield f'  <text x="20" y="{top + 19}" fill="#212121" font-weight="600" font-size="13">{escape(row.title)}</text>'
    for span in row.spans:
        left, wide = _position(span.begin), _position(span.end) - _position(span.begin)
        if len(span.text) * _CHARACTER_WIDTH > wide:
            raise ValueError(f"{row.title}: {span.text!r} is too long for its bar")
        look, color = _TONES.get(span.tone, ("", "#616161"))
        if look:
            yield f'  <rect x="{left:g}" y="{top}" width="{wide:g}" height="{_BAR}" rx="4" {look}/>'
        text = f'x="{left + wide / 2:g}" y="{top + 18}" text-anchor="middle" font-size="12" fill="{color}"'
        yield f"  <text {text}>{escape(span.text)}</text>"
    if row.note:
        yield f'  <text x="{_AXIS_LEFT}" y="{top + 44}" {_NOTE}>{escape(row.note)}</text>'


def _render(source: Path) -> str:
    content = tomllib.loads(source.read_text())
    if "row" in content:
        return render_timeline(msgspec.convert(content, Timeline))
    return render_svg(msgspec.convert(content, Diagram))


def stale_diagrams() -> Iterator[tuple[Path, str]]:
    """Yield outdated pictures with their expected content."""
    for source in sorted(SOURCES.glob("*.toml")):
        picture = _render(source)
        path = ASSETS / f"{source.stem}.svg"
        if not path.exists() or path.read_text() != picture:
            yield path, picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a picture differs")
    check = parser.parse_args().check
    found = list(stale_diagrams())
    for path, picture in () if check else found:
        path.write_text(picture)
    if check and found:
        sys.exit(f"these differ from scripts/diagrams; run make manifests: {' '.join(str(p) for p, _ in found)}")


if __name__ == "__main__":
    main()
