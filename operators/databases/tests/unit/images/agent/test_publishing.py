"""Files of the agent that probes and the exporter read."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman_agent.publishing import replace_text, write_probe_file
from steersman_agent.server.process import ServerPaths


def test_files_replaced_at_once_both_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The publisher's thread writes the report while the agent writes the probe file."""
    paths = ServerPaths(run=tmp_path)
    replace = Path.replace

    def interrupted(fresh: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        replace_text(paths.report_file, "{}")
        return fresh.replace(target)

    monkeypatch.setattr(Path, "replace", interrupted)
    write_probe_file(paths.probe_file, ready=True, reason="serves")
    assert paths.report_file.read_text() == "{}"
    assert paths.probe_file.read_text().endswith(" ready serves\n")
    assert sorted(tmp_path.iterdir()) == [paths.probe_file, paths.report_file]
