"""Entries at the comments ``+steersman:scaffold:…``, by which commands add to files that are the user's."""

from __future__ import annotations

import typer

_PREFIX = "+steersman:scaffold:"


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
