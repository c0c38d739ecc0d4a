"""Tests of ``scripts/images.py``."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.images import FILE, image_list, main


def test_image_list_is_current_and_complete() -> None:
    images = image_list().splitlines()
    assert FILE.read_text().splitlines() == images
    assert {"steersman.dev/postgresql:17", "steersman.dev/postgresql-upgrade:18"} < set(images)
    assert sum("operator" in image for image in images) == 1


def test_check_rejects_outdated_image_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outdated = tmp_path / "images.txt"
    outdated.write_text("steersman.dev/postgresql:14\n")
    monkeypatch.setattr("sys.argv", ["images.py", "--check"])
    with pytest.raises(SystemExit, match="run make manifests"):
        main(outdated)
    monkeypatch.setattr("sys.argv", ["images.py"])
    main(outdated)
    assert outdated.read_text() == image_list()
