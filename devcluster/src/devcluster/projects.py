"""Images of projects as `steersman init` makes them, with the framework of this checkout, and of what they run.

A project's `images.toml` says what its tests need beside the operator: each table is named by an image, and has the
`directory` of its Containerfile and, where need be, the `arguments` of the build.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from devcluster import images, wheels
from devcluster.images import CHECKOUT, PYTHON, Image, Recipe
from devcluster.progress import Progress

_REQUIREMENTS = CHECKOUT / "requirements/project.txt"
_FRAMEWORK = CHECKOUT / "packages/steersman"
_PROJECT = ("README.md", "pyproject.toml")


def ensure(project: Path, reference: str, progress: Progress) -> list[Image]:
    """The image of a project's operator, as `reference`, and those of its images.toml, built first if need be.

    Raises Unsupported where nothing can be built, CommandFailed with the log's place.
    """
    operator = Recipe(
        reference,
        PYTHON,
        project / "Containerfile",
        CHECKOUT,
        sources=lambda: (_REQUIREMENTS, *_framework(), *_written(project)),
        gather=lambda directory, log: _gather(project, directory, log),
    )
    return [images.ensure(operator, progress), *(_others(project, progress))]


def _others(project: Path, progress: Progress) -> Iterator[Image]:
    described = project / "images.toml"
    content: dict[str, dict[str, Any]] = tomllib.loads(described.read_text()) if described.exists() else {}
    for reference, told in content.items():
        directory = project / told["directory"]
        yield images.build(directory / "Containerfile", reference, directory, told.get("arguments", {}), progress)


def _framework() -> Iterator[Path]:
    yield from (_FRAMEWORK / name for name in _PROJECT)
    yield from wheels.below(_FRAMEWORK / "src")


def _written(project: Path) -> Iterator[Path]:
    yield from (project / name for name in _PROJECT)
    yield from wheels.below(project / "src")


def _gather(project: Path, directory: Path, log: Path) -> None:
    """The project as its Containerfile expects it, with a directory `wheels` of all that pip would fetch."""
    wheels.copy(_written(project), project, directory)
    wheels.download(_REQUIREMENTS, directory / "wheels", log)
    framework = directory.parent / "framework"
    wheels.copy(_framework(), _FRAMEWORK, framework)
    wheels.build(framework, directory / "wheels", log)
