"""Files that follow from the code: written, or held to what is there."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import typer

from steersman_cli.exit_codes import EXIT_CHECK_FAILED


def sync_files(root: Path, files: Mapping[str, str | None], *, command: str, check: bool, dry_run: bool) -> None:
    """Writes what is stale, and tells it.

    Args:
        root: what the names of the files are relative to.
        files: texts; None for a file that goes.
        again: the command that writes them, for people.
        check: write nothing, show the difference, and end with code 1 if there is one.
        dry_run: print what would be written.
    """
    stale = {name: text for name, text in files.items() if read_if_exists(root / name) != text}
    if check:
        for name, text in stale.items():
            typer.echo(_unified_diff(name, read_if_exists(root / name), text), nl=False)
        if stale:
            typer.echo(f"{len(stale)} stale: run `{command}`", err=True)
            raise typer.Exit(EXIT_CHECK_FAILED)
        return
    for name, text in stale.items():
        if dry_run:
            typer.echo(f"# {name}\n{text or '# goes'}")
            continue
        path = root / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        typer.echo(f"{'removed' if text is None else 'wrote'} {name}")


def read_if_exists(path: Path) -> str | None:
    """What is in a file; None where there is none."""
    return path.read_text() if path.exists() else None


def _unified_diff(name: str, old: str | None, new: str | None) -> str:
    lines = difflib.unified_diff(
        (old or "").splitlines(True), (new or "").splitlines(True), name, f"{name} (generated)"
    )
    return "".join(lines)
