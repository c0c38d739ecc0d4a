"""Compare build commands of pages with the README of the images."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from framework_support.documented_code import DOCS

ROOT = DOCS.parent
IMAGES = ROOT / "operators/databases/images"
DOCKER_BUILD = re.compile(r"^docker build .*?/Containerfile.*$", re.MULTILINE)


@dataclass(frozen=True)
class DockerBuild:
    """A ``docker build``. ``image`` is without its registry, the operator's without its version, which is yours."""

    image: str
    containerfile: str
    context: str
    arguments: tuple[str, ...]


def docker_builds(page: Path) -> Iterator[DockerBuild]:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("-t")
    parser.add_argument("-f")
    parser.add_argument("--build-arg", action="append", default=[])
    parser.add_argument("context")
    for line in DOCKER_BUILD.findall(page.read_text()):
        typed = line.replace("$IMAGES", str(IMAGES.relative_to(ROOT)))
        parsed_arguments = parser.parse_args(shlex.split(typed, comments=True)[2:])
        image = parsed_arguments.t.partition("/")[2]
        name = image.partition(":")[0] if image.startswith("databases-operator:") else image
        yield DockerBuild(name, parsed_arguments.f, parsed_arguments.context, tuple(parsed_arguments.build_arg))


def test_image_pages_have_the_same_build_commands() -> None:
    reference_builds = {each.image: each for each in docker_builds(IMAGES / "README.md")}
    assert len(reference_builds) == 7
    seen = 0
    for page in sorted(DOCS.rglob("*.md")):
        for build in docker_builds(page):
            assert build == reference_builds[build.image], page
            seen += 1
    assert seen >= 8


def test_image_build_context_has_all_copied_files() -> None:
    for build in docker_builds(IMAGES / "README.md"):
        text = (ROOT / build.containerfile).read_text()
        copied = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*$", text, re.MULTILINE)]
        assert copied, build
        for source in (each for sources in copied for each in sources if "*" not in each):
            assert (ROOT / build.context / source).exists(), f"{build.image} copies {source}"
