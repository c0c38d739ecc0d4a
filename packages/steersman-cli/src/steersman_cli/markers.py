"""Entries at the comments ``+steersman:scaffold:…``, by which commands add to files that are the user's."""

from __future__ import annotations

import typer

from steersman.errors import ConfigurationError
from steersman_cli.project import Project

_PREFIX = "+steersman:scaffold:"


class Edits:
    """Changes of files that a project has, made one after the other and written at the end.

    Methods raise ConfigurationError where a file cannot be read.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._texts: dict[str, str] = {}

    @property
    def changes(self) -> dict[str, str]:
        """The texts of the files that differ from what is there."""
        return {name: text for name, text in self._texts.items() if text != self._read(name)}

    def is_there(self, name: str) -> bool:
        """Whether the project has this file."""
        return (self._project.root / name).exists()

    def text(self, name: str) -> str:
        """The file as it is to be, so far."""
        return self._texts[name] if name in self._texts else self._read(name)

    def change(self, name: str, text: str) -> None:
        """Has the file be ``text``."""
        self._texts[name] = text

    def enter_main(self, imported: str, call: str) -> None:
        """Enters a line of imports, and one of ``setup``, in the project's main module."""
        name = f"src/{self._project.package}/main.py"
        text = entered(self.text(name), "imports", [imported], where=name)
        self.change(name, entered(text, "setup", [call], where=name))

    def list(self, directory: str, marker: str, *entries: str) -> None:
        """Enters resources in a kustomization of ``config``."""
        name = f"config/{directory}/kustomization.yaml"
        self.change(name, entered(self.text(name), marker, [f"  - {e}" for e in entries], where=name))

    def _read(self, name: str) -> str:
        path = self._project.root / name
        try:
            return path.read_text()
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error


def entered(text: str, marker: str, lines: list[str], *, where: str) -> str:
    """``text`` with ``lines`` above the comment of ``marker``, indented as it is; those that are there are left out.

    Lines of imports are kept in order. Where somebody removed the comment, they are told what to enter by hand.

    Args:
        where: the file's name, for that message.
    """
    present = text.splitlines()
    missing = [line for line in lines if line.strip() not in {p.strip() for p in present}]
    if not missing:
        return text
    place = next((i for i, p in enumerate(present) if p.strip() == f"# {_PREFIX}{marker}"), None)
    if place is None:
        entry = "\n".join(f"    {line}" for line in missing)
        typer.echo(
            f"steersman: {where} has no comment `# {_PREFIX}{marker}` any more. Enter by hand:\n{entry}", err=True
        )
        return text
    indent = present[place][: len(present[place]) - len(present[place].lstrip())]
    if marker == "imports":
        return _imported(present, place, missing)
    return "\n".join([*present[:place], *(f"{indent}{line}" for line in missing), *present[place:], ""])


def _imported(present: list[str], place: int, lines: list[str]) -> str:
    """With ``lines`` in the block of imports above ``place``: the project's own, in order."""
    end = place
    while end and not present[end - 1].strip():
        end -= 1
    package = lines[0].split()[1].partition(".")[0]
    begin = end
    while begin and present[begin - 1].startswith(f"from {package}."):
        begin -= 1
    own = sorted([*present[begin:end], *lines])
    gap = [] if begin < end else [""]
    return "\n".join([*present[:end][:begin], *gap, *own, "", *present[place:], ""])
