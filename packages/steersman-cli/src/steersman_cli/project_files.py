"""Files of a project: create, edit and synchronize."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import typer

from steersman.errors import ConfigurationError
from steersman_cli.exit_codes import EXIT_CHECK_FAILED
from steersman_cli.project import Project

_MARKER_PREFIX = "+steersman:scaffold:"


def write_files(
    root: Path, files: Mapping[str, str], *, force: bool, dry_run: bool, edits: Mapping[str, str]
) -> None:
    """Write ``files`` and ``edits``, and print their names.

    Args:
        root: directory of the project.
        files: texts of new files, by path. An existing ``__init__.py`` is kept.
        force: overwrite existing files.
        dry_run: print the names only.
        edits: new texts of existing files, by path.

    Raises:
        ConfigurationError: a file exists, and ``force`` is false.
    """
    creatable = {n: t for n, t in files.items() if not (n.endswith("__init__.py") and (root / n).exists())}
    conflicting = [n for n, text in creatable.items() if (root / n).exists() and (root / n).read_text() != text]
    if conflicting and not force:
        raise ConfigurationError(f"files exist: {', '.join(conflicting)}. Give --force to overwrite them")
    for name, text in {**creatable, **edits}.items():
        path = root / name
        verb = "would write" if dry_run else "wrote"
        typer.echo(f"{verb} {name}")
        if not dry_run:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def sync_files(root: Path, files: Mapping[str, str | None], *, command: str, check: bool, dry_run: bool) -> None:
    """Write stale files, and print their names.

    Args:
        root: directory of the files.
        files: texts by path; None removes a file.
        command: the command that writes the files, for messages.
        check: write nothing, print the differences, and exit with 1 if there are any.
        dry_run: print the texts instead of writing them.
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
            typer.echo(f"# {name}\n{text or '# removed'}")
            continue
        path = root / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        typer.echo(f"{'removed' if text is None else 'wrote'} {name}")


def read_if_exists(path: Path) -> str | None:
    """Return the text of an existing file, or None."""
    return path.read_text() if path.exists() else None


class FileEdits:
    """Edits of existing files of a project, collected in memory.

    Methods raise ConfigurationError if a file cannot be read.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._texts: dict[str, str] = {}

    @property
    def changes(self) -> dict[str, str]:
        """New texts of the changed files, by path."""
        return {name: text for name, text in self._texts.items() if text != self._read(name)}

    def exists(self, name: str) -> bool:
        """Return True if the project has this file."""
        return (self._project.root / name).exists()

    def text(self, name: str) -> str:
        """Return the text of a file with the edits so far."""
        return self._texts[name] if name in self._texts else self._read(name)

    def set_text(self, name: str, text: str) -> None:
        """Replace the text of a file."""
        self._texts[name] = text

    def add_to_main(self, import_line: str, call: str) -> None:
        """Add an import and a line of ``setup`` to the main module."""
        name = f"src/{self._project.package}/main.py"
        text = insert_at_marker(self.text(name), "imports", [import_line], file_name=name)
        self.set_text(name, insert_at_marker(text, "setup", [call], file_name=name))

    def add_to_kustomization(self, directory: str, marker: str, *entries: str) -> None:
        """Add resources to a kustomization in ``config``."""
        name = f"config/{directory}/kustomization.yaml"
        self.set_text(name, insert_at_marker(self.text(name), marker, [f"  - {e}" for e in entries], file_name=name))

    def _read(self, name: str) -> str:
        path = self._project.root / name
        try:
            return path.read_text()
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error


def insert_at_marker(text: str, marker: str, lines: list[str], *, file_name: str) -> str:
    """Insert missing lines above a marker.

    Imports are sorted. Without the comment, the text is unchanged, and a message lists the lines to add.

    Args:
        text: text of the file.
        marker: name of the marker, such as ``imports``.
        lines: lines to insert.
        file_name: name of the file, for the message.
    """
    present = text.splitlines()
    missing = [line for line in lines if line.strip() not in {p.strip() for p in present}]
    if not missing:
        return text
    marker_line = next((i for i, p in enumerate(present) if p.strip() == f"# {_MARKER_PREFIX}{marker}"), None)
    if marker_line is None:
        entry = "\n".join(f"    {line}" for line in missing)
        typer.echo(
            f"steersman: {file_name} has no comment `# {_MARKER_PREFIX}{marker}`. Add these lines:\n{entry}",
            err=True,
        )
        return text
    indent = present[marker_line][: len(present[marker_line]) - len(present[marker_line].lstrip())]
    if marker == "imports":
        return _insert_import(present, marker_line, missing)
    return "\n".join([*present[:marker_line], *(f"{indent}{line}" for line in missing), *present[marker_line:], ""])


def _insert_import(present: list[str], marker_line: int, lines: list[str]) -> str:
    """Insert imports in order into the block of the project's own imports."""
    end = marker_line
    while end and not present[end - 1].strip():
        end -= 1
    package = lines[0].split()[1].partition(".")[0]
    begin = end
    while begin and present[begin - 1].startswith(f"from {package}."):
        begin -= 1
    project_imports = sorted([*present[begin:end], *lines])
    separator = [] if begin < end else [""]
    return "\n".join([*present[:end][:begin], *separator, *project_imports, "", *present[marker_line:], ""])


def _unified_diff(name: str, old: str | None, new: str | None) -> str:
    lines = difflib.unified_diff(
        (old or "").splitlines(True), (new or "").splitlines(True), name, f"{name} (generated)"
    )
    return "".join(lines)
