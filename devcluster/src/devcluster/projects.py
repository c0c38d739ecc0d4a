"""Images of scaffolded projects with the framework of this checkout.

A project's `images.toml` lists further images that its tests need. Each table is named after an image and has the
`directory` of its Containerfile and optional build `arguments`.
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
    """Build the image of a project's operator and those of its images.toml.

    Raises Unsupported where nothing can be built, CommandFailed with the log's place.
    """
    operator = Recipe(
        reference,
        PYTHON,
        project / "Containerfile",
        CHECKOUT,
        sources=lambda: (_REQUIREMENTS, *_framework_files(), *_project_files(project)),
        gather=lambda directory, log: _gather(project, directory, log),
    )
    return [images.ensure(operator, progress), *(_auxiliary_images(project, progress))]


def _auxiliary_images(project: Path, progress: Progress) -> Iterator[Image]:
    images_file = project / "images.toml"
    content: dict[str, dict[str, Any]] = tomllib.loads(images_file.read_text()) if images_file.exists() else {}
    for reference, table in content.items():
        directory = project / table["directory"]
        yield images.build(directory / "Containerfile", reference, directory, table.get("arguments", {}), progress)


def _framework_files() -> Iterator[Path]:
    yield from (_FRAMEWORK / name for name in _PROJECT)
    yield from wheels.source_files(_FRAMEWORK / "src")


def _project_files(project: Path) -> Iterator[Path]:
    yield from (project / name for name in _PROJECT)
    yield from wheels.source_files(project / "src")


def _gather(project: Path, directory: Path, log: Path) -> None:
    """Collect the build context: the project, and a `wheels` directory for pip."""
    wheels.copy(_project_files(project), project, directory)
    wheels.download(_REQUIREMENTS, directory / "wheels", log)
    framework = directory.parent / "framework"
    wheels.copy(_framework_files(), _FRAMEWORK, framework)
    wheels.build(framework, directory / "wheels", log)
