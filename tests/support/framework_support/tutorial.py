"""A page of the documentation, done as a reader does it: files written, changes made, commands typed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from framework_support.documented import DOCS
from framework_support.terminal import CTRL_C, Terminal, at_terminal

_BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)
_AGE = re.compile(r"\d+[smh]")


@dataclass
class Block:
    """A block of code.

    Attributes:
        language: what is said after the fence. ``console`` is for what no test has: Docker, an image registry.
        title: the name of a file, if it is one.
    """

    language: str
    title: str
    text: str


def blocks_of(page: str) -> list[Block]:
    found = _BLOCK.finditer((DOCS / page).read_text())
    return [Block(m["language"], m["title"] or "", m["text"]) for m in found]


class Reader:
    """Does what a page says.

    Args:
        root: where files are written and commands typed.
        environment: of the commands.
        service: how a command begins that stays in a terminal of its own, and what it says once it works.
    """

    def __init__(self, root: Path, environment: dict[str, str], service: tuple[str, str]) -> None:
        self._root = root
        self._environment = environment
        self._begins, self._works = service
        self._written: set[str] = set()

    def follow(self, blocks: list[Block]) -> None:
        """From top to bottom. AssertionError: something is not as the page says."""
        said = ""
        for number, block in enumerate(blocks):
            if block.language == "diff":
                self._change(block)
            elif block.title:
                self._write(block)
            elif block.language == "text":
                _compare(block.text, said)
            elif block.language == "sh":
                before, _, last = block.text.strip().rpartition("\n")
                if last.startswith(self._begins):
                    self._type(before)
                    with at_terminal(
                        ["bash", "-c", last], directory=self._root, environment=self._environment
                    ) as running:
                        self._beside(running, blocks[number + 1 :])
                    return
                said = self._type(block.text)

    def _beside(self, running: Terminal, blocks: list[Block]) -> None:
        running.until(self._works)
        try:
            self.follow(blocks)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{running.shown}") from error
        running.press(CTRL_C)
        running.wait()

    def _type(self, command: str) -> str:
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

    def _write(self, block: Block) -> None:
        """Parts of one file follow each other."""
        file = self._root / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        former = f"{file.read_text()}\n" if block.title in self._written else ""
        file.write_text(former + block.text)
        self._written.add(block.title)

    def _change(self, block: Block) -> None:
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


def _compare(shown: str, said: str) -> None:
    """Every line that is shown was said, but for spaces and ages."""
    lines = [_words(line) for line in said.splitlines()]
    for line in shown.splitlines():
        assert _words(line) in lines, f"{line!r} is not in\n{said}"


def _words(line: str) -> list[str]:
    return [_AGE.sub("AGE", word) for word in line.split()]
