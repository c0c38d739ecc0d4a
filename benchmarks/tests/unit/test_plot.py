"""Tests of the chart: valid SVG, bar lengths and truncated bars."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks import plot
from benchmarks.scenarios.catalogue import cold_start_title
from benchmarks.summary import Summary

SVG = "{http://www.w3.org/2000/svg}"
PANEL = plot.PANELS[0]


def draw_values(**values: float | tuple[float, ...]) -> ElementTree.Element:
    summaries = [
        Summary(PANEL.scenario, peer.replace("_", "-"), PANEL.metric, "1/s", v if isinstance(v, tuple) else (v,))
        for peer, v in values.items()
    ]
    return ElementTree.fromstring(plot.draw(summaries))


def bars(picture: ElementTree.Element) -> list[float]:
    found = picture.iter(f"{SVG}rect")
    return [float(bar.get("width", "0")) for bar in found if bar.get("class") in ("ours", "other")]


def texts(picture: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def paths(picture: ElementTree.Element, kind: str) -> int:
    return sum(path.get("class") == kind for path in picture.iter(f"{SVG}path"))


def test_bars_are_as_long_as_the_figures() -> None:
    short, long = bars(draw_values(kopf=100.0, steersman=200.0))
    assert long == 2 * short > 0


def test_plot_orders_peers_and_shows_figures() -> None:
    shown = texts(draw_values(steersman=200.0, controller_runtime=100.0))
    assert [t for t in shown if t in ("controller-runtime", "100", "steersman", "200")] == [
        "controller-runtime", "100", "steersman", "200",
    ]  # fmt: skip


def test_plot_highlights_steersman_bars() -> None:
    picture = draw_values(kopf=1.0, steersman=2.0)
    kinds = [bar.get("class") for bar in picture.iter(f"{SVG}rect")]
    assert kinds == ["page", "other", "ours"]


def test_plot_cuts_oversized_bar_and_shows_full_figure() -> None:
    picture = draw_values(controller_runtime=100.0, kopf=10_000.0)
    small, cut = bars(picture)
    assert cut == 3 * small or abs(cut - 3 * small) < 1
    assert paths(picture, "cut") == 1
    assert "10,000" in texts(picture)


def test_a_spread_is_drawn_where_there_is_one() -> None:
    assert paths(draw_values(kopf=(90.0, 100.0, 110.0), steersman=100.0), "spread") == 1


def test_all_zero_is_drawn_too() -> None:
    assert bars(draw_values(kopf=0.0, steersman=0.0)) == [0.0, 0.0]


def test_the_caption_is_below_the_bars() -> None:
    summary = Summary(PANEL.scenario, "kopf", PANEL.metric, "1/s", (1.0,))
    picture = ElementTree.fromstring(plot.draw([summary], ["2 cores & little memory"]))
    *_, last = picture.iter(f"{SVG}text")
    assert last.text == "2 cores & little memory"
    assert float(last.get("y", "0")) < float((picture.get("viewBox") or "").split()[3])


def test_of_the_cold_starts_the_largest_is_shown() -> None:
    small, large = (Summary(cold_start_title(n), "kopf", PANEL.metric, "1/s", (float(n),)) for n in (2_000, 10_000))
    assert "2,000" in texts(ElementTree.fromstring(plot.draw([small])))
    both = texts(ElementTree.fromstring(plot.draw([small, large])))
    assert "10,000" in both
    assert "2,000" not in both


def test_plot_without_measurements_is_empty() -> None:
    assert bars(ElementTree.fromstring(plot.draw([]))) == []


def test_plot_has_accessible_label() -> None:
    label = draw_values(kopf=1.5).get("aria-label")
    assert label is not None
    assert "kopf 1.50" in label
