"""``scripts/diagrams.py`` renders timelines."""

from __future__ import annotations

import pytest
from scripts.diagrams import Row, Span, Tick, Timeline, render_timeline


def timeline(title: str, text: str) -> Timeline:
    row = Row(title=title, spans=[Span(begin=0, end=50, text=text)])
    return Timeline(label="A & B", ticks=[Tick(at=0, text="0 s")], row=[row])


def test_timeline_escapes_label_and_draws_bar() -> None:
    picture = render_timeline(timeline("Primary", "serves"))
    assert 'aria-label="A &amp; B"' in picture
    assert 'width="295"' in picture


def test_timeline_too_long_text_is_rejected() -> None:
    with pytest.raises(ValueError, match="too long for its bar"):
        render_timeline(timeline("Primary", "serves " * 20))


def test_timeline_too_long_title_is_rejected() -> None:
    with pytest.raises(ValueError, match="too long for its column"):
        render_timeline(timeline("The previous primary", "serves"))
