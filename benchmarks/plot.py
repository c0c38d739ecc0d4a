"""SVG bar charts of the results, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from benchmarks.peers import FRAMEWORK, PEERS
from benchmarks.report import number
from benchmarks.scenarios.catalogue import IDLE, PODS, RESTART, SIZES, STEADY, cold_start_title, pods_title
from benchmarks.summary import Summary


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric of the chart and its better direction."""

    scenario: str
    metric: str
    title: str
    more_is_better: bool = False


def _cold_start(objects: int) -> tuple[Panel, ...]:
    title, what = cold_start_title(objects), f"Cold start on {objects:,} objects"
    return (
        Panel(title, "objects per second", f"{what}: objects/s", more_is_better=True),
        Panel(title, "CPU per object", f"{what}: CPU per object, ms"),
        Panel(title, "peak RSS", f"{what}: peak memory, MiB"),
    )


@dataclass(frozen=True, slots=True)
class PlotSpec:
    """Panels, bars and highlighted peers of a chart.

    Attributes:
        label: description for screen readers.
    """

    label: str
    panels: Sequence[Panel]
    peers: Sequence[str]
    highlighted: frozenset[str]


PANELS = (
    *(panel for objects in reversed(SIZES) for panel in _cold_start(objects)),
    Panel(STEADY, "latency p99", "100 changes/s: from change to reconcile, p99, ms"),
    Panel(pods_title(PODS), "memory per pod", "50,000 pods of 7 KB cached: KiB per pod"),
    Panel(pods_title(PODS), "longest pause after churn", "50,000 pods, all changed once: longest pause, ms"),
    Panel(RESTART, "CPU", "Restart with nothing to do: CPU, s"),
    Panel(IDLE, "idle RSS", "Idle: memory, MiB"),
)

COMPARISON = PlotSpec(
    "Steersman beside its peers",
    PANELS,
    [peer.name for peer in PEERS],
    frozenset(peer.name for peer in PEERS if peer.package == FRAMEWORK),
)
_COLUMNS = 2
_WIDTH, _ROW, _HEAD, _GAP, _MARGIN = 400, 22, 34, 22, 20
_LABEL, _VALUE, _LINE = 132, 62, 16
# Longer bars are truncated and marked. Their label still shows the full value.
_MAX_RATIO_TO_NEXT = 3.0

_STYLE = """
    text { font: 13px system-ui, sans-serif; fill: #212121; }
    .title { font-weight: 600; } .hint { font-size: 11px; fill: #616161; }
    .page { fill: #fafafa; } .other { fill: #b0bec5; } .ours { fill: #3949ab; }
    .spread { stroke: #212121; stroke-width: 1.2; } .cut { fill: #fafafa; }
    @media (prefers-color-scheme: dark) {
      text { fill: #eceff1; } .hint { fill: #b0bec5; }
      .page, .cut { fill: #1e2127; } .other { fill: #607d8b; } .ours { fill: #9fa8da; }
      .spread { stroke: #eceff1; }
    }
"""


def draw(summaries: Sequence[Summary], caption: Sequence[str] = (), picture: PlotSpec = COMPARISON) -> str:
    """Render the measured panels as SVG, with medians and spreads.

    Args:
        caption: lines below the chart, such as the machine.
        picture: selection of panels and bars.
    """
    panels = _panels(picture.panels, summaries)
    measured = [(panel, found) for panel in panels if (found := _panel_summaries(panel, picture.peers, summaries))]
    rows = max((len(found) for _, found in measured), default=0)
    height_of_panel = _HEAD + rows * _ROW + _GAP
    width = 2 * _MARGIN + _COLUMNS * _WIDTH + (_COLUMNS - 1) * _GAP
    foot = _MARGIN + -(-len(measured) // _COLUMNS) * height_of_panel
    height = foot + len(caption) * _LINE + _MARGIN
    drawn = "".join(
        f'  <g transform="translate({_MARGIN + i % _COLUMNS * (_WIDTH + _GAP)} '
        f'{_MARGIN + i // _COLUMNS * height_of_panel})">\n{_panel(panel, found, picture.highlighted)}  </g>\n'
        for i, (panel, found) in enumerate(measured)
    )
    below = "".join(
        f'  <text class="hint" x="{_MARGIN}" y="{foot + 8 + row * _LINE}">{escape(line)}</text>\n'
        for row, line in enumerate(caption)
    )
    label = f"{picture.label}: " + "; ".join(_accessible_label(panel, found) for panel, found in measured)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label, {chr(34): "&quot;"})}">\n  <style>{_STYLE}  </style>\n'
        f'  <rect class="page" width="{width}" height="{height}" rx="8"/>\n{drawn}{below}</svg>\n'
    )


def _panels(panels: Sequence[Panel], summaries: Sequence[Summary]) -> list[Panel]:
    """Return the panels to draw; only the largest cold start is kept."""
    scenarios = {summary.scenario for summary in summaries}
    measured = [title for title in map(cold_start_title, SIZES) if title in scenarios]
    return [panel for panel in panels if panel.scenario not in measured[:-1]]


def _panel_summaries(panel: Panel, order: Sequence[str], summaries: Sequence[Summary]) -> list[Summary]:
    found = [s for s in summaries if (s.scenario, s.metric) == (panel.scenario, panel.metric) and s.peer in order]
    return sorted(found, key=lambda s: order.index(s.peer))


def _accessible_label(panel: Panel, found: Sequence[Summary]) -> str:
    return f"{panel.title}: " + ", ".join(f"{s.peer} {number(s.median)}" for s in found)


def _panel(panel: Panel, found: Sequence[Summary], highlighted: frozenset[str]) -> str:
    hint = "more is better" if panel.more_is_better else ""
    head = (
        f'    <text class="title" y="12">{escape(panel.title)}</text>\n'
        f'    <text class="hint" x="{_WIDTH}" y="12" text-anchor="end">{hint}</text>\n'
    )
    full = _full_scale([s.median for s in found])
    return head + "".join(_bar(s, _HEAD - 6 + row * _ROW, full, s.peer in highlighted) for row, s in enumerate(found))


def _full_scale(values: Sequence[float]) -> float:
    *others, largest = sorted(values)
    return min(largest, _MAX_RATIO_TO_NEXT * others[-1]) if others and others[-1] > 0 else largest


def _bar(summary: Summary, y: int, full: float, is_highlighted: bool) -> str:
    room = _WIDTH - _LABEL - _VALUE

    def length(value: float) -> float:
        return round(min(value / full, 1.0) * room, 1) if full > 0 else 0.0

    middle = y + _ROW // 2 - 2
    kind = "ours" if is_highlighted else "other"
    bar = length(summary.median)
    parts = [
        f'<text x="{_LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(summary.peer)}</text>',
        f'<rect class="{kind}" x="{_LABEL}" y="{y + 2}" width="{bar}" height="{_ROW - 8}" rx="2"/>',
        f'<text x="{_WIDTH}" y="{y + 13}" text-anchor="end">{number(summary.median)}</text>',
    ]
    if summary.median > full:
        cut = _LABEL + room - 16
        parts.append(f'<path class="cut" d="M{cut} {y + _ROW}l6 -{_ROW}h5l-6 {_ROW}z"/>')
    elif summary.low < summary.high:
        start, end = _LABEL + length(summary.low), _LABEL + length(summary.high)
        parts.append(f'<path class="spread" d="M{start} {middle}H{end}"/>')
    return "".join(f"    {part}\n" for part in parts)
