"""Compare the committed CRDs with those of the last release, by ``steersman crd diff``.

The last release is the newest reachable tag such as ``v1.2.3``. Without one, or without CRDs in it, there is nothing
to compare. An intended breaking change needs a changelog fragment, ``changed`` or ``removed``, that names the field.
The commit of a release has the fragments as a new section of the changelog.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CRDS = "operators/databases/config/crd/bases"
FRAGMENTS = "changelog.d"
CHANGELOG = "CHANGELOG.md"
RELEASE_TAGS = "v[0-9]*"


def last_release(root: Path) -> str:
    """Return the tag of the last release, or an empty string."""
    command = ["git", "-C", str(root), "describe", "--tags", "--abbrev=0", "--match", RELEASE_TAGS]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def undocumented_changes(root: Path, tag: str) -> list[str] | None:
    """Return the breaking changes since ``tag`` without a fragment.

    None if the release has no CRDs.
    """
    # git archive fails for a missing path.
    archive = subprocess.run(["git", "-C", str(root), "archive", tag, CRDS], capture_output=True, check=False)
    if archive.returncode != 0:
        return None
    with tempfile.TemporaryDirectory() as directory, tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        for member in files.getmembers():
            if (content := files.extractfile(member)) is not None:
                (Path(directory) / PurePosixPath(member.name).name).write_bytes(content.read())
        changes = _breaking_changes(Path(directory), root / CRDS)
    fragments = [
        path.read_text(encoding="utf-8")
        for pattern in ("*.changed.md", "*.removed.md")
        for path in (root / FRAGMENTS).glob(pattern)
    ]
    texts = [*fragments, *_new_changelog_lines(root, tag)]
    return [_describe(change) for change in changes if not _is_documented(change, texts)]


def _breaking_changes(old: Path, new: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "steersman_cli", "crd", "diff", str(old), str(new), "-o", "json"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode not in (0, 1):
        sys.exit(found.stderr)
    return json.loads(found.stdout)


def _new_changelog_lines(root: Path, tag: str) -> list[str]:
    """Return the lines of the changelog that ``tag`` lacks."""
    command = ["git", "-C", str(root), "diff", "--unified=0", tag, "--", CHANGELOG]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if line.startswith("+")]


def _is_documented(change: dict[str, Any], texts: Sequence[str]) -> bool:
    name = change["field"].lstrip(".") or change["definition"].partition(".")[0]
    return any(f"`{name}`" in text for text in texts)


def _describe(change: dict[str, Any]) -> str:
    return f"{change['definition']} {change['version']} {change['field']}: {change['message']}\n    {change['fix']}"


def main() -> None:
    """Check the repository."""
    tag = last_release(ROOT)
    changes = undocumented_changes(ROOT, tag) if tag else None
    if changes is None:
        sys.stdout.write(f"{CRDS}: no release tag with CRDs to compare with\n")
    elif changes:
        advice = f"Undo them, or name each field in {FRAGMENTS}/*.changed.md."
        sys.exit("\n".join([*changes, f"{len(changes)} breaking changes since {tag}. {advice}"]))


if __name__ == "__main__":
    main()
