"""What a reader types to build the images is what the images' own page says, and that has what they are made of."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from framework_support.documented import DOCS

ROOT = DOCS.parent
IMAGES = ROOT / "operators/databases/images"
TYPED = re.compile(r"^docker build .*?/Containerfile.*$", re.MULTILINE)


@dataclass(frozen=True)
class Build:
    """A ``docker build``. ``image`` is without its registry, the operator's without its version, which is yours."""

    image: str
    containerfile: str
    context: str
    arguments: tuple[str, ...]


def builds(page: Path) -> Iterator[Build]:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("-t")
    parser.add_argument("-f")
    parser.add_argument("--build-arg", action="append", default=[])
    parser.add_argument("context")
    for line in TYPED.findall(page.read_text()):
        typed = line.replace("$IMAGES", str(IMAGES.relative_to(ROOT)))
        given = parser.parse_args(shlex.split(typed, comments=True)[2:])
        image = given.t.partition("/")[2]
        name = image.partition(":")[0] if image.startswith("databases-operator:") else image
        yield Build(name, given.f, given.context, tuple(given.build_arg))


def test_pages_build_as_the_images_own_page_does() -> None:
    known = {each.image: each for each in builds(IMAGES / "README.md")}
    assert len(known) == 5
    seen = 0
    for page in sorted(DOCS.rglob("*.md")):
        for build in builds(page):
            assert build == known[build.image], page
            seen += 1
    assert seen >= 8


def test_a_context_has_what_its_containerfile_copies() -> None:
    for build in builds(IMAGES / "README.md"):
        text = (ROOT / build.containerfile).read_text()
        copied = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*$", text, re.MULTILINE)]
        assert copied, build
        for source in (each for sources in copied for each in sources if "*" not in each):
            assert (ROOT / build.context / source).exists(), f"{build.image} copies {source}"
