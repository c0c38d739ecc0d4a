"""Test runner for the files and commands of a documentation page."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from framework_support.documented_code import DOCS
from framework_support.pty_terminal import CTRL_C, Terminal, run_in_terminal

_BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)
_AGE = re.compile(r"\d+[smh]")


@dataclass
class Block:
    """A code block.

    Attributes:
        language: language of the block. ``console`` blocks are not run: they need Docker or an image registry.
        title: name of the file, or empty.
        text: content.
    """

    language: str
    title: str
    text: str


def blocks_of(page: str) -> list[Block]:
    found = _BLOCK.finditer((DOCS / page).read_text())
    return [Block(m["language"], m["title"] or "", m["text"]) for m in found]


class TutorialRunner:
    """Runs the blocks of a page.

    Args:
        root: working directory.
        environment: environment of the commands.
        service: prefix of the command that keeps running, and the output that shows its readiness.
    """

    def __init__(self, root: Path, environment: dict[str, str], service: tuple[str, str]) -> None:
        self._root = root
        self._environment = environment
        self._begins, self._works = service
        self._written: set[str] = set()

    def run_blocks(self, blocks: list[Block]) -> None:
        """Run blocks in order. Raises AssertionError if the page is wrong."""
        said = ""
        for number, block in enumerate(blocks):
            if block.language == "diff":
                self._edit_file(block)
            elif block.title:
                self._write_file(block)
            elif block.language == "text":
                _compare_output(block.text, said)
            elif block.language == "sh":
                before, _, last = block.text.strip().rpartition("\n")
                if last.startswith(self._begins):
                    self._run_command(before)
                    with run_in_terminal(
                        ["bash", "-c", last], directory=self._root, environment=self._environment
                    ) as running:
                        self._run_in_background(running, blocks[number + 1 :])
                    return
                said = self._run_command(block.text)

    def _run_in_background(self, running: Terminal, blocks: list[Block]) -> None:
        running.wait_for_text(self._works)
        try:
            self.run_blocks(blocks)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{running.output}") from error
        running.send_keys(CTRL_C)
        running.wait()

    def _run_command(self, command: str) -> str:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self._root,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def _write_file(self, block: Block) -> None:
        """Write a file. Blocks with the same title are appended."""
        file = self._root / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        former = f"{file.read_text()}\n" if block.title in self._written else ""
        file.write_text(former + block.text)
        self._written.add(block.title)

    def _edit_file(self, block: Block) -> None:
        file = self._root / block.title
        lines = file.read_text().splitlines()
        place = 0
        for line in block.text.splitlines():
            sign, text = line[0], line[1:]
            if sign == "+":
                lines.insert(place, text)
                place += 1
                continue
            assert text in lines, f"{block.title} has no line {text!r}"
            place = lines.index(text)
            if sign == "-":
                del lines[place]
            else:
                place += 1
        file.write_text("\n".join(lines) + "\n")


def _compare_output(shown: str, said: str) -> None:
    """Check that each documented line was printed, except for spaces and ages."""
    lines = [_normalize_line(line) for line in said.splitlines()]
    for line in shown.splitlines():
        assert _normalize_line(line) in lines, f"{line!r} is not in\n{said}"


def _normalize_line(line: str) -> list[str]:
    return [_AGE.sub("AGE", word) for word in line.split()]
