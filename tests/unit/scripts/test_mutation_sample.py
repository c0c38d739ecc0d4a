"""``scripts/mutation_sample.py`` changes one line of a module."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.mutation_sample import choose, mutants_of


@pytest.mark.parametrize(
    ("line", "mutated"),
    [
        ("ready = size < limit", ["ready = size <= limit"]),
        ("ready = size is not limit", ["ready = size is limit"]),
        ("ready = first and second", ["ready = first or second"]),
        ("ready = not first", ["ready = first"]),
        ("size = first + 9", ["size = first - 9", "size = first + 10"]),
        ("widget.resize(size)", ["pass"]),
        ("log.info(size)", []),
        ("size: Literal[3] = limit", []),
    ],
)
def test_mutants_change_one_line(tmp_path: Path, line: str, mutated: list[str]) -> None:
    file = tmp_path / "widget.py"
    file.write_text(f"{line}\n")
    assert [m.mutated for m in mutants_of(file)] == mutated


def test_sample_has_lines_of_both_checkouts(tmp_path: Path) -> None:
    for name, ending in (("old", "old"), ("new", "new")):
        (tmp_path / name).mkdir()
        lines = [f"ready{n} = widget_size < limit{n}" for n in range(100)]
        (tmp_path / name / "widget.py").write_text("\n".join([*lines, f"ready = widget_size < {ending}"]))
    sample = tmp_path / "sample.json"
    choose(tmp_path / "new", tmp_path / "old", sample)
    text = sample.read_text()
    assert text.count("limit") == 200
    assert "new" not in text
